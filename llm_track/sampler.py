"""Rollouts of a language model: groups of completions to training prompts, scored at their end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from redline.algorithms.core.resampling import collect_mixed
from redline.algorithms.core.types import Array, Metrics, Need, Rollout
from redline.llm_track.decoding import Completions, Prompts
from redline.llm_track.generation import Generation, SamplingError
from redline.llm_track.problems import LanguageTask, Problem
from redline.llm_track.rewards import Answered, RewardError, Score
from redline.llm_track.verifier import FAILURES


class LanguageSampler:
    """Training prompts as a source of rollouts.

    Args:
        task: Asks and verifies.
        generation: Completes.
        rng: Draws problems and tokens.
        keep_log_prob: Rollouts carry the log-probabilities of the policy that sampled them, for
            a learner that is another policy by then.
    """

    def __init__(
        self,
        task: LanguageTask,
        generation: Generation,
        rng: np.random.Generator,
        keep_log_prob: bool = False,
    ) -> None:
        self.task, self.generation, self.rng = task, generation, rng
        self.keep_log_prob = keep_log_prob
        self._pool: list[Problem] = []

    def collect(self, policy: Any, need: Need) -> Rollout:
        """One rollout: `need.groups` prompts with `need.group_size` completions each.

        Raises:
            SamplingError: Steps were asked for, or a prompt is too long.
            RewardError: A function of the user failed; what was drawn is taken back.
        """
        if need.groups is None:
            raise SamplingError(
                "completions are whole episodes: ask for a number of episodes, not of steps"
            )
        before = self.rng.bit_generator.state
        try:
            if need.mixed:
                return collect_mixed(lambda asked: self._collect(policy, asked), need)
            return self._collect(policy, need)
        except RewardError:
            # So that a run goes on, once the reward is mended, as if it had not been cut.
            self.rng.bit_generator.state = before
            raise

    def _collect(self, policy: Any, need: Need) -> Rollout:
        assert need.groups is not None
        size = need.group_size
        passed_over = self.task.unreadable
        problems = self._problems(need.groups, need.starts)
        passed_over = self.task.unreadable - passed_over
        prompts = self.generation.prompts([problem.prompt for problem in problems])
        keep_states = not self.keep_log_prob
        completions = self.generation.complete(policy, prompts, size, self.rng, keep_states)
        failed = FAILURES.total()
        scores = self.generation.scores(problems, completions)
        counts = verifier_counts(passed_over, FAILURES.total() - failed)
        texts = self.generation.texts(completions)
        answered = [
            Answered(problems[row // size].prompt, text, problems[row // size].gold, found)
            for row, (text, found) in enumerate(zip(texts, scores, strict=True))
        ]
        rollout = self._rollout(prompts, completions, answered, size)
        if completions.states is not None:
            policy.remember(rollout.observation, rollout.mask, completions.states)
        return replace(
            rollout,
            metrics=rollout.metrics | counts,
            outcome=np.array([float(found.correct) for found in scores]),
            start_of_group=[problem.prompt for problem in problems],
            longest=self.generation.settings.max_completion,
        )

    def _problems(self, groups: int, starts: int | None) -> list[Problem]:
        if starts is None:
            return self.task.training(self.rng, groups)
        if len(self._pool) != starts:
            # The same for every run, as a data set is.
            self._pool = self.task.training(np.random.default_rng(starts), starts)
        return [self._pool[i] for i in self.rng.choice(starts, size=groups, replace=False)]

    @property
    def left_out(self) -> Mapping[str, str]:
        """Questions passed over so far, as the task has them."""
        return self.task.left_out

    def progress(self) -> dict[str, Any]:
        """What the next rollout depends on besides the policy."""
        return {"rng": self.rng.bit_generator.state}

    def resume(self, progress: dict[str, Any]) -> None:
        """Go on from `progress`."""
        if progress["rng"] is not None:
            self.rng.bit_generator.state = progress["rng"]

    def _rollout(
        self, prompts: Prompts, completions: Completions, answered: list[Answered], size: int
    ) -> Rollout:
        mask = completions.mask
        rows, length = np.arange(len(mask)), mask.sum(axis=1)
        last = np.zeros_like(mask)
        last[rows, length - 1] = True
        reward, means = self.generation.rewards(answered, self.rng)
        scores = [one.score for one in answered]
        return Rollout(
            observation=observation(prompts, completions, size),
            action=completions.tokens,
            reward=np.where(last, np.array(reward)[:, None], 0.0),
            mask=mask,
            # The score is final at the cap too: bootstrapping would pay for running into it.
            terminated=last,
            truncated=last & ~completions.ended[:, None],
            episode_id=np.where(mask, rows[:, None], -1),
            group_of_episode=rows // size,
            bootstrap=None,
            whole_episodes=True,
            steps=len(mask),
            episode_return=reward,
            episode_length=length.tolist(),
            log_prob=completions.log_prob if self.keep_log_prob else None,
            sampled_log_prob=completions.log_prob,
            metrics=group_metrics(scores, completions, size) | means,
        )


def observation(prompts: Prompts, completions: Completions, repeat: int) -> Array:
    """[B, L, 2]: the tokens of prompt and completion, and their mask (1 = a real token)."""
    tokens = np.repeat(prompts.tokens, repeat, axis=0)
    mask = np.repeat(prompts.mask, repeat, axis=0)
    both = np.concatenate([tokens, completions.tokens], axis=1)
    return np.stack([both, np.concatenate([mask, completions.mask], axis=1)], axis=-1)


def top_share(answers: Sequence[str]) -> float:
    """Share of the most frequent answer among all completions; those without one have none."""
    counts = Counter(answer for answer in answers if answer)
    return max(counts.values(), default=0) / len(answers)


def verifier_counts(unreadable: int, failed: int) -> Metrics:
    """What is in no share: questions passed over, and comparisons that failed, counted as wrong."""
    return {"llm/gold_unreadable": float(unreadable), "llm/failed_comparisons": float(failed)}


def group_metrics(scores: Sequence[Score], completions: Completions, group_size: int) -> Metrics:
    """What a rollout's completions are like, means over completions or groups.

    Returns:
        Shares: right, wrong and no answers (as counted), right ones by either reading, completions
        in the asked form,
        completions cut by the cap, groups whose answers are all right and all wrong (they teach a
        group-relative method nothing).
        Counts: tokens of a completion, and different answers in a group. The share of the
        answer that is given most often, over all prompts: near 1 where answers collapse to one.
    """
    correct = np.array([found.correct for found in scores]).reshape(-1, group_size)
    answers = np.array([found.answer for found in scores], dtype=object).reshape(-1, group_size)
    return {
        "llm/accuracy": float(correct.mean()),
        "llm/wrong_answer": float((~correct & (answers != "")).mean()),
        "llm/no_answer": float((~correct & (answers == "")).mean()),
        "llm/accuracy_strict": float(np.mean([found.strict for found in scores])),
        "llm/accuracy_flexible": float(np.mean([found.flexible for found in scores])),
        "llm/format": float(np.mean([found.formatted for found in scores])),
        "llm/answer_length": float(completions.mask.sum(axis=1).mean()),
        "llm/truncated": float(1.0 - completions.ended.mean()),
        "llm/group_all_right": float(correct.all(axis=1).mean()),
        "llm/group_all_wrong": float((~correct).all(axis=1).mean()),
        "llm/distinct_answers": float(np.mean([len({*group} - {""}) for group in answers])),
        "llm/top_answer": top_share(answers.ravel().tolist()),
    }
