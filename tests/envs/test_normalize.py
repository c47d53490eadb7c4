"""Running statistics: cases 4 and 16."""

import numpy as np
import pytest
import toys  # noqa: F401
from gymnasium.vector import AutoresetMode
from sampling import policy, sampler, vector_sampler

from redline.algorithms.core.types import Need
from redline.envs.evaluate import Evaluator
from redline.envs.normalize import ObservationNormalizer, RewardNormalizer, RunningMoments
from redline.envs.tasks import control_task

TRUE = np.ones((1, 4), dtype=bool)
END = np.array([[False, False, True, False]])


def test_moments_equal_those_of_all_samples_at_once():
    rng = np.random.default_rng(0)
    samples = rng.normal(1e3, 2.0, (100, 3))
    moments = RunningMoments((3,))
    for part in np.array_split(samples, [0, 1, 30, 31]):
        moments.update(part)
    assert moments.count == 100
    assert np.allclose(moments.mean, samples.mean(axis=0), rtol=1e-12)
    assert np.allclose(moments.variance, samples.var(axis=0), rtol=1e-9)


def test_case_4_the_return_starts_anew_after_an_episodes_end():
    normaliser = RewardNormalizer(1, gamma=0.5)
    accumulated = normaliser.accumulate(reward=np.ones((1, 4)), mask=TRUE, end=END)
    assert accumulated.tolist() == [[1.0, 1.5, 1.75, 1.0]]
    assert accumulated.var() == 0.10546875
    scaled = RewardNormalizer(1, gamma=0.5)(reward=np.ones((1, 4)), mask=TRUE, end=END)
    assert scaled == pytest.approx(np.full((1, 4), 3.07920), abs=1e-5)


def test_the_return_goes_on_across_rollouts():
    whole, split = RewardNormalizer(1, 0.9), RewardNormalizer(1, 0.9)
    reward = np.arange(4.0)[None]
    first = whole.accumulate(reward=reward, mask=TRUE, end=END)
    parts = [
        split.accumulate(reward=reward[:, at], mask=TRUE[:, at], end=END[:, at])
        for at in (slice(0, 2), slice(2, 4))
    ]
    assert np.array_equal(first, np.concatenate(parts, axis=1))


@pytest.mark.parametrize(
    ("mode", "counted"), [(AutoresetMode.NEXT_STEP, 24), (AutoresetMode.SAME_STEP, 30)]
)
def test_case_4_reset_rows_are_not_counted(mode, counted):
    source = vector_sampler("ToyEnds-v0", mode, n=3)
    source.reward_normalizer = RewardNormalizer(3, 0.99)
    source.collect(policy("ToyEnds-v0"), Need(steps=10))
    assert source.reward_normalizer.moments.count == counted


def test_case_16_statistics_survive_saving_and_never_move_at_evaluation():
    normaliser = ObservationNormalizer(1)
    state = {"mean": np.array([5.0]), "variance": np.array([4.0]), "count": 100}
    normaliser.moments.load_state_dict(state)
    assert normaliser(np.array([[9.0]])) == pytest.approx(2.0, abs=1e-6)
    copy = ObservationNormalizer(1)
    copy.moments.load_state_dict(normaliser.moments.state_dict())
    assert copy(np.array([[9.0]])) == normaliser(np.array([[9.0]]))


def test_evaluation_reports_raw_returns_with_frozen_statistics():
    source = sampler("ToyLong-v0", normalize_observation=True, normalize_reward=True)
    actor = policy("ToyLong-v0")
    rollout = source.collect(actor, Need(steps=60))
    before = source.observation_normalizer.moments.state_dict()
    evaluator = Evaluator(control_task("ToyLong-v0"), 3, source.normalise)
    assert evaluator.returns(actor, deterministic=True) == [50.0] * 3
    after = source.observation_normalizer.moments.state_dict()
    assert all(np.array_equal(before[key], after[key]) for key in before)
    assert rollout.episode_return == [50.0]
    assert not np.allclose(rollout.reward, 1.0)


def test_one_rollout_is_seen_in_one_scale():
    source = sampler("ToyLong-v0", normalize_observation=True)
    actor = policy("ToyLong-v0")
    seen = []
    act = actor.act
    actor.act = lambda observation, rng: seen.append(observation[0, 1]) or act(observation, rng)
    first, second, third = (source.collect(actor, Need(steps=steps)) for steps in (50, 50, 10))
    # The first rollout is acted on raw, for want of statistics, and learned from in its own scale.
    assert seen[:50] == list(range(50))
    scaled = (np.arange(50) - 24.5) / np.sqrt(np.arange(50).var())
    for rollout in (first, second):
        assert np.allclose(rollout.observation[0, :, 1], scaled, atol=1e-5)
    assert np.allclose(seen[50:100], scaled, atol=1e-5)
    assert source.observation_normalizer.moments.count == 110
    assert np.allclose(seen[100:], third.observation[0, :, 1], atol=1e-6)
