"""Rollouts of completions: rows, masks, rewards, metrics."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from language import PlainPolicy, micro_language_model

from redline.algorithms.core.types import Need, Rollout
from redline.llm_track.decoding import Completions, Prompts
from redline.llm_track.generation import Generation, SamplingError, SamplingSettings
from redline.llm_track.models import LanguageModel
from redline.llm_track.problems import Problem
from redline.llm_track.rewards import Rewards, Score
from redline.llm_track.sampler import LanguageSampler, group_metrics, observation
from redline.llm_track.tasks import language_task

NEED = Need(groups=3, group_size=4)


def sampler_of(
    model: LanguageModel, seed: int = 0, keep_log_prob: bool = False, **settings: Any
) -> LanguageSampler:
    chosen = SamplingSettings(**{"max_completion": 10} | settings)
    rng = np.random.default_rng(seed)
    task = language_task("llm:arithmetic")
    return LanguageSampler(task, Generation(model, chosen), rng, keep_log_prob)


def ending_model() -> LanguageModel:
    """A micro model that often ends: rows of many lengths."""
    made = micro_language_model()
    made.model.lm_head.weight.data[1] *= 2.0
    return made


def collect(seed: int = 0, **settings: Any) -> tuple[LanguageModel, Rollout]:
    made = ending_model()
    rollout = sampler_of(made, seed, **settings).collect(PlainPolicy(made.model), NEED)
    lengths = set(rollout.episode_length)
    assert len(lengths) > 2 and rollout.truncated.any() and not rollout.truncated.all()
    return made, rollout


def test_a_rollout_of_completions() -> None:
    made, rollout = collect()
    b, t = rollout.mask.shape
    assert (b, rollout.steps, rollout.whole_episodes) == (12, 12, True)
    assert rollout.observation.dtype == np.int64 and rollout.observation.shape[2] == 2
    assert rollout.group_of_episode.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    np.testing.assert_array_equal(rollout.observation[:, -t:, 0], rollout.action)
    np.testing.assert_array_equal(rollout.observation[:, -t:, 1], rollout.mask)
    for row in range(b):
        length = rollout.episode_length[row]
        assert rollout.mask[row].tolist() == [True] * length + [False] * (t - length)
        assert rollout.terminated[row].nonzero()[0].tolist() == [length - 1]
        # Cut means that the cap was reached without an end.
        ended = rollout.action[row, length - 1] == made.tokenizer.eos_id
        assert rollout.truncated[row].any() == (not ended)
        assert ended or length == 10
        assert (rollout.action[row, : length - 1] != made.tokenizer.eos_id).all()
        assert set(rollout.episode_id[row, :length]) == {row}
        assert set(rollout.episode_id[row, length:]) <= {-1}


def test_members_of_a_group_answer_the_same_prompt() -> None:
    made, rollout = collect()
    prompts = [
        made.tokenizer.decode(row[: -rollout.action.shape[1], 0].tolist())
        for row in rollout.observation
    ]
    assert [len(set(prompts[i : i + 4])) for i in (0, 4, 8)] == [1, 1, 1]
    assert len(set(prompts)) == 3 and all(text.endswith("=") for text in prompts)


def test_the_reward_is_paid_once_at_the_last_token(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [Score(i % 2 == 0, i % 3 == 0, str(i)) for i in range(12)]
    monkeypatch.setattr(Generation, "scores", lambda self, problems, completions: scores)
    _, rollout = collect(reward=Rewards({"exact": 1.0, "format": 0.5}))
    expected = [score.correct + 0.5 * score.formatted for score in scores]
    assert rollout.episode_return == expected
    assert (rollout.reward[~rollout.terminated] == 0.0).all()
    np.testing.assert_array_equal(rollout.reward[rollout.terminated], expected)


def test_every_row_is_scored_against_its_own_problem() -> None:
    made = micro_language_model()
    problems = [Problem("1+1=", "2", "2".__eq__), Problem("1+2=", "3", "3".__eq__)]
    tokens = np.array([made.tokenizer.completion(text) for text in ("#2", "#3", "#2", "#3")])
    mask = np.ones_like(tokens, dtype=bool)
    completions = Completions(tokens, mask, np.array([True, True, True, False]), mask * 0.0)
    scores = Generation(made, SamplingSettings()).scores(problems, completions)
    # The last one is right but was cut.
    assert scores == [
        Score(True, True, "2", True, True),
        Score(False, True, "3"),
        Score(False, True, "2"),
        Score(False, False, ""),
    ]


def test_group_metrics_by_hand() -> None:
    right, wrong = Score(True, True, "5", True, True), Score(False, True, "6", False, True)
    none = Score(False, False, "")
    scores = [right, right, wrong, none, right, wrong]
    lengths = np.array([1, 2, 3, 4, 2, 3])
    mask = np.arange(4) < lengths[:, None]
    ended = np.array([True, True, True, False, True, True])
    found = group_metrics(scores, Completions(mask, mask, ended, mask), 2)
    assert found == pytest.approx(
        {
            "llm/accuracy": 0.5,
            "llm/wrong_answer": 2 / 6,
            "llm/no_answer": 1 / 6,
            "llm/accuracy_strict": 0.5,
            "llm/accuracy_flexible": 5 / 6,
            "llm/format": 5 / 6,
            "llm/answer_length": 2.5,
            "llm/truncated": 1 / 6,
            "llm/group_all_right": 1 / 3,  # the first
            "llm/group_all_wrong": 1 / 3,  # the second
            "llm/distinct_answers": 4 / 3,  # 1, 1 (no answer is none) and 2
            "llm/top_answer": 3 / 6,
        }
    )
    counts = {"llm/gold_unreadable", "llm/failed_comparisons"}
    assert collect()[1].metrics.keys() == found.keys() | counts | {"llm/reward"}


def test_the_observation_says_what_is_padding() -> None:
    prompts = Prompts(np.array([[0, 7], [8, 9]]), np.array([[False, True], [True, True]]))
    tokens = np.array([[3, 1], [1, 0], [4, 5], [6, 1]])
    mask = np.array([[True, True], [True, False], [True, True], [True, True]])
    found = observation(prompts, Completions(tokens, mask, mask, mask), 2)
    assert found[..., 0].tolist() == [[0, 7, 3, 1], [0, 7, 1, 0], [8, 9, 4, 5], [8, 9, 6, 1]]
    assert found[..., 1].tolist() == [[0, 1, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]]


def test_the_seed_decides_the_rollout() -> None:
    first, again, other = (collect(seed)[1] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.observation, again.observation)
    assert (
        first.observation.shape != other.observation.shape
        or (first.observation != other.observation).any()
    )


def test_log_probs_are_kept_when_they_are_asked_for() -> None:
    made = ending_model()
    policy = PlainPolicy(made.model)
    assert sampler_of(made).collect(policy, NEED).log_prob is None
    kept = sampler_of(made, keep_log_prob=True).collect(policy, NEED)
    assert kept.log_prob.shape == kept.mask.shape
    assert (kept.log_prob[kept.mask] < 0.0).all() and (kept.log_prob[~kept.mask] == 0.0).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, "temperature must be above 0 while training, got 0.0"),
        ({"temperature": float("nan")}, "temperature must be above 0"),
        ({"max_completion": 1}, "max_completion must be at least 2, got 1"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(SamplingError, match=message):
        SamplingSettings(**settings)  # type: ignore[arg-type]


def test_a_prompt_that_leaves_no_room_is_one_sentence() -> None:
    made = replace(micro_language_model(), context=16)
    policy = PlainPolicy(made.model)
    # 482+769= has 8 tokens.
    assert sampler_of(made, max_completion=8).collect(policy, NEED).steps == 12
    with pytest.raises(
        SamplingError, match="8 tokens and a completion of up to 9 exceed"
    ) as caught:
        sampler_of(made, max_completion=9).collect(policy, NEED)
    assert "16 tokens" in str(caught.value) and "\n" not in str(caught.value)


def test_steps_are_refused() -> None:
    made = micro_language_model()
    with pytest.raises(SamplingError, match="ask for a number of episodes, not of steps"):
        sampler_of(made).collect(PlainPolicy(made.model), Need(steps=8))
