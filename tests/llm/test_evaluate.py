"""Held-out figures: pass@k and maj@k by hand and by counting, accuracies of a known policy."""

from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from language import micro_language_model

from redline.llm_track.decoding import Completions
from redline.llm_track.evaluate import LanguageEvaluator, majority_at_k, pass_at_k
from redline.llm_track.generation import Generation, SamplingSettings
from redline.llm_track.tasks import language_task


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_pass_at_k_is_the_mean_over_all_choices(k: int) -> None:
    correct = np.random.default_rng(0).random((7, 6)) < np.linspace(0.0, 1.0, 7)[:, None]
    chosen = [list(some) for some in combinations(range(6), k)]
    counted = np.mean([[row[some].any() for some in chosen] for row in correct])
    assert pass_at_k(correct, k) == pytest.approx(counted, abs=1e-12)


def test_pass_at_k_by_hand() -> None:
    correct = np.array([[True, False, False, False]])
    # 1 - C(3, 2) / C(4, 2) = 1 - 3/6; the estimate 1 - (1 - 1/4)^2 = 0.4375 would be biased.
    assert pass_at_k(correct, 2) == pytest.approx(0.5)
    assert pass_at_k(np.ones((2, 500), dtype=bool), 400) == 1.0


def test_majority_votes_by_hand() -> None:
    answers = ["5", "6", "5", "7", "", "", "8", "8"]
    correct = np.array([[True, False, True, False], [False, False, True, True]])
    # 5 wins twice against 6 and 7; completions without an answer have no vote.
    assert majority_at_k(answers, correct, 4) == 1.0
    # Pairs: (5, 6) a tie that the first wins, right; (5, 7) right; ("", "") wrong; (8, 8) right.
    assert majority_at_k(answers, correct, 2) == 0.75
    wrong_first = np.array([[False, True, False, True]])
    assert majority_at_k(["6", "5", "6", "5"], wrong_first, 4) == 0.0
    # The third completion is beyond the last whole pair.
    assert majority_at_k(["5", "5", "6"], np.array([[True, True, False]]), 2) == 1.0


class Scripted(Generation):
    """Answers every sum rightly in its greedy completion, and with odd numbers when sampled."""

    calls: list[tuple[int, int]]

    def complete(self, policy: Any, prompts: Any, repeat: int, rng: Any) -> Completions:
        texts = []
        for row, real in zip(prompts.tokens, prompts.mask, strict=True):
            question = self.language_model.tokenizer.decode(row[real].tolist())
            total = sum(map(int, question.removesuffix("=").split("+")))
            odd = [f"#{total | 1:05d}" if total > 999 else f"#{total | 1}"]
            texts += [f"#{total}"] if rng is None else odd + [f"#{total | 1}"] * (repeat - 1)
        self.calls.append((len(prompts.tokens), repeat))
        tokenizer = self.language_model.tokenizer
        rows = [tokenizer.completion(text) for text in texts]
        width = max(map(len, rows))
        mask = np.arange(width) < np.array([len(row) for row in rows])[:, None]
        tokens = np.zeros(mask.shape, dtype=np.int64)
        tokens[mask] = np.concatenate(rows)
        return Completions(tokens, mask, np.ones(len(rows), dtype=bool), mask * -1.0)


def test_the_figures_of_a_scripted_policy() -> None:
    generation = Scripted(micro_language_model(), SamplingSettings(max_completion=12))
    generation.calls = []
    task = language_task("llm:arithmetic")
    evaluator = LanguageEvaluator(task, generation, problems=300, samples=4)
    found = evaluator.metrics(SimpleNamespace())
    totals = np.array([int(problem.gold) for problem in task.held_out(300)])
    odd, long = totals % 2 == 1, totals > 999
    assert found["eval/accuracy_greedy"] == 1.0
    # An even sum is never answered rightly; of a long odd one the first answer has a zero too many.
    assert found["eval/accuracy"] == pytest.approx(np.mean(odd * np.where(long, 0.75, 1.0)))
    assert found["eval/pass@4"] == pytest.approx(odd.mean())
    assert found["eval/pass@2"] == pytest.approx(odd.mean())
    assert found["eval/maj@4"] == pytest.approx(odd.mean())
    assert found["eval/distinct_answers"] == pytest.approx(np.mean(1 + long))
    assert found["eval/format"] == 1.0 and found["eval/truncated"] == 0.0
    assert found["eval/answer_length"] == pytest.approx(np.mean(np.where(long, 6 + 0.25, 5)))
    assert {"eval/pass@8", "eval/pass@1"}.isdisjoint(found)
    # In parts, so that memory does not grow with the number of problems.
    assert generation.calls == [(300, 1), (128, 4), (128, 4), (44, 4)]


def test_evaluations_repeat_themselves_and_leave_the_sampler_alone() -> None:
    made = micro_language_model()
    task = language_task("llm:arithmetic")
    generation = Generation(made, SamplingSettings(max_completion=6))
    evaluator = LanguageEvaluator(task, generation, problems=5, samples=2)
    policy = SimpleNamespace(model=made.model)
    assert evaluator.metrics(policy) == evaluator.metrics(policy)


@pytest.mark.parametrize(("problems", "samples"), [(0, 4), (4, 0)])
def test_nothing_to_evaluate_is_refused(problems: int, samples: int) -> None:
    generation = Generation(micro_language_model(), SamplingSettings())
    with pytest.raises(ValueError, match=f"got {problems} and {samples}"):
        LanguageEvaluator(language_task("llm:arithmetic"), generation, problems, samples)
