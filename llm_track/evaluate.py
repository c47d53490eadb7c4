"""Held-out problems: accuracy, pass@k, majority votes, lengths and formats."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redline.algorithms.core.types import Array, Metrics
from redline.llm_track.generation import Generation
from redline.llm_track.problems import LanguageTask
from redline.llm_track.rewards import Score
from redline.llm_track.sampler import group_metrics, verifier_counts
from redline.llm_track.split import HELD_OUT_SEED
from redline.llm_track.verifier import FAILURES

# Completions decoded at once: bounds the memory of the cache.
_ROWS = 512


class LanguageEvaluator:
    """Answers the same held-out problems at every call, with the same random numbers.

    Args:
        task: Asks and verifies.
        generation: Completes.
        problems: How many.
        samples: Completions of each for the sampled figures.

    Raises:
        ValueError: No problem, or no sample.
    """

    def __init__(
        self, task: LanguageTask, generation: Generation, problems: int, samples: int
    ) -> None:
        if problems < 1 or samples < 1:
            raise ValueError(
                f"an evaluation needs problems and samples, got {problems} and {samples}"
            )
        self.generation, self.samples = generation, samples
        before, self._task = task.unreadable, task
        self.problems = task.held_out(problems)
        self._passed_over = task.unreadable - before

    @property
    def left_out(self) -> Mapping[str, str]:
        """Questions passed over so far, as the task has them."""
        return self._task.left_out

    def metrics(self, policy: Any) -> Metrics:
        """eval/accuracy is that of sampled completions, eval/accuracy_greedy of greedy ones.

        pass@k and maj@k are there for the powers of two up to the number of samples.
        """
        failed = FAILURES.total()
        greedy, _ = self._scores(policy, 1, None)
        sampled, found = self._scores(policy, self.samples, np.random.default_rng(HELD_OUT_SEED))
        correct = np.array([score.correct for score in sampled]).reshape(-1, self.samples)
        answers = [score.answer for score in sampled]
        found["eval/accuracy_greedy"] = float(np.mean([score.correct for score in greedy]))
        counts = verifier_counts(self._passed_over, FAILURES.total() - failed)
        found |= {name.replace("llm/", "eval/"): value for name, value in counts.items()}
        k = 2
        while k <= self.samples:
            found[f"eval/pass@{k}"] = pass_at_k(correct, k)
            found[f"eval/maj@{k}"] = majority_at_k(answers, correct, k)
            k *= 2
        return found

    def _scores(
        self, policy: Any, repeat: int, rng: np.random.Generator | None
    ) -> tuple[list[Score], Metrics]:
        """Scores of all problems, and means of the metrics of a rollout over all completions."""
        scores: list[Score] = []
        totals: defaultdict[str, float] = defaultdict(float)
        size = max(1, _ROWS // repeat)
        for start in range(0, len(self.problems), size):
            problems = self.problems[start : start + size]
            prompts = self.generation.prompts([problem.prompt for problem in problems])
            completions = self.generation.complete(policy, prompts, repeat, rng)
            part = self.generation.scores(problems, completions)
            for name, value in group_metrics(part, completions, repeat).items():
                totals[name.replace("llm/", "eval/")] += value * len(problems)
            scores += part
        return scores, {name: total / len(self.problems) for name, total in totals.items()}


def pass_at_k(correct: Array, k: int) -> float:
    """Chance that k of a problem's n completions hold a right one, mean over problems.

    1 - C(n - c, k) / C(n, k) with c right ones of n: unbiased (arXiv:2107.03374, Eq. 1).

    Args:
        correct: [P, n] bool.
        k: At most n.
    """
    n = correct.shape[1]
    right = correct.sum(axis=1)
    # C(n - c, k) / C(n, k) as a product, which no large factorial can overflow; a factor is 0
    # once fewer than k wrong ones are there.
    drawn = np.arange(k)
    misses = np.maximum(n - right[:, None] - drawn, 0) / (n - drawn)
    return float(1.0 - misses.prod(axis=1).mean())


def majority_at_k(answers: Sequence[str], correct: Array, k: int) -> float:
    """Share of problems whose most frequent answer among k completions is right.

    Mean over the n // k runs of k completions each. Completions without an answer have no vote;
    of equally frequent answers the one that came first wins.

    Args:
        answers: Of all completions, those of a problem together; empty for none.
        correct: [P, n] bool.
        k: At most n.
    """
    problems, n = correct.shape
    text = np.array(answers, dtype=object).reshape(problems, n)
    wins = []
    for row, right in zip(text, correct, strict=True):
        for start in range(0, n - k + 1, k):
            votes = Counter(answer for answer in row[start : start + k] if answer)
            first = votes.most_common(1)[0][0] if votes else None
            wins.append(any(right[start : start + k][row[start : start + k] == first]))
    return float(np.mean(wins))
