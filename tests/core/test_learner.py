"""One update of a learner: values, padding, the reference policy, stale data and its state."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from batches import DISTRIBUTIONS, START, algorithm, make_policy, make_rollout
from closeness import close, identical
from small import small

from redline.algorithms import registry
from redline.algorithms.core.advantages import GAE, Estimate
from redline.algorithms.core.aggregation import Aggregate
from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.closeup import CloseUp
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.types import Bootstrap, Metrics, Progress, Rollout
from redline.algorithms.core.updates import FirstOrder
from redline.envs.policies import MLPCritic

NAMES = registry.names()
LENGTHS = np.array([7, 3, 5, 1])


def learner(method: Algorithm, space: str = "categorical", seed: int = 0) -> Learner:
    policy = make_policy(DISTRIBUTIONS[space], seed=seed)
    rng = np.random.default_rng(seed + 1)
    critic = MLPCritic(3, (6,), "tanh", rng, dtype=np.float64) if method.needs_critic else None
    return Learner(method, policy, critic, rng)


def experience(space: str = "categorical", seed: int = 0, padding: float = 0.0) -> Rollout:
    """Four whole episodes in two groups, one a row, `padding` behind each."""
    rng = np.random.default_rng(seed)
    mask = np.arange(8) < LENGTHS[:, None]
    observation = rng.normal(size=(4, 8, 3))
    policy = make_policy(DISTRIBUTIONS[space])
    action = policy.act(observation.reshape(-1, 3), rng)
    action = action.reshape(4, 8, *action.shape[1:])
    observation = np.where(mask[..., None], observation, padding)
    if action.dtype.kind == "f":
        action = np.where(mask[..., None], action, padding)
    return make_rollout(
        np.where(mask, rng.normal(size=(4, 8)), padding),
        mask,
        observation=observation,
        action=action,
        group_of_episode=np.array([0, 0, 1, 1]),
        start_of_group=["left", "right"],
    )


@dataclass(frozen=True)
class Watched:
    """GAE that keeps what it was given and what it gave."""

    inner: GAE = GAE(0.9, 0.8)
    seen: list[Any] = field(default_factory=list)
    needs_critic = True
    needs_whole_episodes = False

    def __call__(self, rollout: Rollout, value: Any, next_value: Any) -> Estimate:
        estimate = self.inner(rollout, value, next_value)
        self.seen.append((value, next_value, estimate.advantage))
        return estimate


class FirstColumn(MLPCritic):
    """A critic whose values are written into the observations."""

    def values(self, observation: Any, mask: Any) -> Any:
        return observation[..., 0]


@pytest.mark.parametrize("truncated", [True, False])
def test_the_value_after_an_end_is_that_of_the_episodes_own_last_observation(
    truncated: bool,
) -> None:
    # Values 3, 4, 5 | 10; the first episode's last observation is worth 6, the cut one's 7.
    observation = np.zeros((1, 5, 3))
    observation[0, :, 0] = [3.0, 4.0, 5.0, 10.0, 1e6]
    after = np.zeros((2, 3))
    after[:, 0] = [6.0, 7.0]
    column = np.array([2, 3])
    rows = slice(0 if truncated else 1, None)
    end = np.array([[False, False, True, False, False]])
    rollout = make_rollout(
        [[1.0, 1.0, 2.0, 1.0, 1e6]],
        [[True, True, True, True, False]],
        ends=end,
        observation=observation,
        terminated=end & (not truncated),
        truncated=end & truncated,
        bootstrap=Bootstrap(np.zeros(2, dtype=int)[rows], column[rows], after[rows]),
        whole_episodes=False,
    )
    watched = Watched()
    method = replace(algorithm("ppo"), advantage=watched)
    policy, rng = make_policy(DISTRIBUTIONS["categorical"]), np.random.default_rng(0)
    Learner(method, policy, FirstColumn(3, (), "tanh", rng), rng).update(rollout, START)
    ((value, next_value, advantage),) = watched.seen
    identical(value, np.array([[3.0, 4.0, 5.0, 10.0, 0.0]]))
    identical(next_value[:, :4], np.array([[4.0, 5.0, 6.0 if truncated else 0.0, 7.0]]))
    first = [3.92416, 3.228, 2.4] if truncated else [1.1248, -0.66, -3.0]
    close(advantage, np.array([[*first, -2.7, 0.0]]))


@pytest.mark.parametrize("aggregate", [None, "seq_mean"])
@pytest.mark.parametrize("space", ["categorical", "gaussian"])
@pytest.mark.parametrize("name", NAMES)
def test_padding_is_inert_in_a_whole_update(name: str, space: str, aggregate: Any) -> None:
    method = replace(algorithm(name), penalties=Penalties(0.01, 0.1))
    if method.clip is not None and space == "gaussian":
        method = replace(method, clip=replace(method.clip, schedule="fixed"))
    if aggregate is not None:
        method = replace(method, aggregate=Aggregate(aggregate))
    results = []
    for padding in (0.0, 1e6):
        ours = learner(method, space)
        metrics = ours.update(experience(space, padding=padding), START)
        assert np.isfinite(list(metrics.values())).all()
        results.append((ours.policy.parameters, ours.critic, metrics))
    identical(results[1][0], results[0][0])
    assert results[1][2] == results[0][2]
    if method.needs_critic:
        identical(results[1][1].parameters, results[0][1].parameters)


def test_the_loss_is_that_of_the_new_policy_on_the_whole_batch() -> None:
    ours, rollout = learner(algorithm("ppo")), experience()
    mask = rollout.mask
    old = log_prob(ours.policy, rollout)
    value = np.where(mask, ours.critic.values(rollout.observation, mask), 0.0)
    after = np.where(rollout.terminated, 0.0, np.pad(value, ((0, 0), (0, 1)))[:, 1:])
    advantage = algorithm("ppo").advantage(rollout, value, after).advantage[mask]
    advantage = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
    metrics = ours.update(rollout, START)
    ratio = np.exp(log_prob(ours.policy, rollout) - old)
    objective = np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
    close(metrics["train/loss"], -objective.mean(), rtol=1e-9)
    close(metrics["train/ratio_max"], ratio.max(), rtol=1e-9)


def log_prob(policy: Any, rollout: Rollout) -> Any:
    """log pi(a|s) of the valid elements, [N]."""
    output = policy.network(rollout.observation[rollout.mask])
    params = policy.distribution.params(np, (output,))
    return policy.distribution.log_prob(np, params, rollout.action[rollout.mask])


def test_bounds_follow_the_schedule_and_are_reported() -> None:
    ours = learner(replace(algorithm("ppo"), clip=Clip(0.2, 0.4, "linear")))
    metrics = ours.update(experience(), Progress(50, 100))
    close([metrics["train/clip_lo"], metrics["train/clip_hi"]], [0.9, 1.2])
    assert "train/clip_lo" not in learner(algorithm("trpo")).update(experience(), START)


@pytest.mark.parametrize("aggregate", ["token_mean", "seq_mean"])
def test_the_reference_policy_is_the_one_at_the_start_of_the_run(aggregate: Any) -> None:
    penalties = Penalties(kl=0.5, estimator="k3")
    method = replace(algorithm("grpo"), penalties=penalties, aggregate=Aggregate(aggregate))
    ours, rollout = learner(method), experience()
    initial = log_prob(ours.policy, rollout)
    for _ in range(2):
        metrics = ours.update(rollout, START)
        d = log_prob(ours.policy, rollout) - initial
        close(metrics["train/kl_reference"], np.mean(np.exp(-d) - 1.0 + d), rtol=1e-9)
        assert metrics["train/kl_reference"] > 0.0
    # The learning rate has fallen to 0: looking at the reference policy leaves no trace.
    kept = ours.policy.snapshot()
    assert ours.update(rollout, Progress(100, 100))["train/learning_rate"] == 0.0
    identical(ours.policy.parameters, kept)


def test_advantages_of_a_batch_are_standardised_over_its_valid_elements() -> None:
    count = LENGTHS.sum()
    for name in ("trpo", "npg"):
        metrics = learner(algorithm(name)).update(experience(), START)
        close(metrics["train/advantage_mean"], 0.0, atol=1e-12)
        close(metrics["train/advantage_std"], np.sqrt((count - 1) / count), rtol=1e-6)


def test_the_reference_policy_pulls() -> None:
    free, held = (
        learner(replace(algorithm("grpo"), penalties=Penalties(kl=kl, estimator="k2")))
        for kl in (0.0, 100.0)
    )
    distances = []
    for ours in (free, held):
        start = ours.policy.snapshot()
        for seed in range(5):
            ours.update(experience(seed=seed), START)
        distances.append(np.linalg.norm(ours.policy.parameters - start))
    assert distances[1] < 0.5 * distances[0]


def test_a_stale_rollout_keeps_the_log_prob_of_its_behaviour() -> None:
    rollout = experience()
    ours = learner(replace(algorithm("grpo"), update=FirstOrder(0.0)))
    fresh = ours.update(rollout, START)
    assert fresh["train/approx_kl"] == 0.0 and fresh["train/ratio_max"] == 1.0
    behaviour = np.full(rollout.mask.shape, 1e6)
    behaviour[rollout.mask] = log_prob(ours.policy, rollout) - np.log(1.5)
    stale = ours.update(replace(rollout, log_prob=behaviour), START)
    close(stale["train/ratio_mean"], 1.5, rtol=1e-9)
    assert stale["train/clip_fraction_high"] > 0.0


def one_minibatch(rule: Any) -> Any:
    if isinstance(rule, FirstOrder):
        return replace(rule, minibatch_size=None)
    return replace(rule, steps=one_minibatch(rule.steps)) if hasattr(rule, "steps") else rule


def test_a_reward_that_is_not_a_number_moves_nothing() -> None:
    for name in NAMES:
        method = algorithm(name)
        method = replace(method, update=one_minibatch(method.update))  # none may come before
        ours, rollout = learner(method), experience()
        rollout.reward[0, 0] = np.nan
        start = ours.policy.parameters.copy()
        critic = None if ours.critic is None else ours.critic.snapshot()
        with pytest.raises(FloatingPointError, match="not applied"):
            ours.update(rollout, START)
        identical(ours.policy.parameters, start)
        if ours.critic is not None:
            identical(ours.critic.parameters, critic)


def run(ours: Learner, seeds: range) -> list[Metrics]:
    return [ours.update(experience(seed=seed), Progress(seed, 10)) for seed in seeds]


@pytest.mark.parametrize("name", NAMES)
def test_a_restored_learner_goes_on_bit_for_bit(name: str) -> None:
    method = replace(algorithm(name), penalties=Penalties(0.01, 0.1))
    straight = learner(method)
    run(straight, range(2))
    resumed = learner(method, seed=50)
    resumed.load_state_dict(straight.state_dict())
    resumed.rng.bit_generator.state = straight.rng.bit_generator.state
    assert run(straight, range(2, 5)) == run(resumed, range(2, 5))
    assert type(resumed.policy) is type(straight.policy)
    identical(resumed.policy.parameters, straight.policy.parameters)


@pytest.mark.parametrize("name", NAMES)
def test_looking_changes_nothing(name: str) -> None:
    plain, watched = learner(algorithm(name)), learner(algorithm(name))
    watched.watch = CloseUp()
    for seed in range(2):
        one, other = (each.update(experience(seed=seed), START) for each in (plain, watched))
        assert {key: other[key] for key in one} == one
        more = other.keys() - one.keys()
        assert {"follow/0", "train/followed_low"} <= more
    identical(plain.policy.parameters, watched.policy.parameters)
    assert plain.rng.bit_generator.state == watched.rng.bit_generator.state


@pytest.mark.parametrize("name", NAMES)
def test_a_smaller_step_moves_every_method_less(name: str) -> None:
    moved = []
    for scale in (1.0, 0.01):
        ours = learner(small(name))
        ours.update(experience(), Progress(0, 100, scale))
        assert ours.seen is not None and ours.seen.log_prob is not None
        moved.append(np.abs(ours.seen.log_prob - ours.seen.batch.old_log_prob).mean())
    assert 0.0 < moved[1] < 0.5 * moved[0]


def test_a_sequence_method_refuses_cut_episodes() -> None:
    method = replace(algorithm("ppo"), aggregate=Aggregate("seq_mean"))
    with pytest.raises(ValueError, match="needs whole episodes, and this rollout cuts them"):
        learner(method).update(replace(experience(), whole_episodes=False), START)
