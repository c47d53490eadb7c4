"""Rollouts on environments whose every number is known."""

from dataclasses import replace

import numpy as np
import pytest
import toys
from gymnasium.vector import AutoresetMode
from sampling import policy, sampler, vector_sampler

from redline.algorithms.core.advantages import GAE, RewardToGo
from redline.algorithms.core.types import Need
from redline.envs.tasks import EnvironmentFault, TaskError, control_task


def half_values(rollout):
    value = np.full(rollout.mask.shape, 0.5)
    return value, value


def test_reset_rows_of_next_step_mode_never_count():
    source = vector_sampler("ToyEnds-v0", AutoresetMode.NEXT_STEP)
    rollout = source.collect(policy("ToyEnds-v0"), Need(steps=8))
    assert rollout.mask[0].tolist() == [True, True, True, False, True, True, True, False]
    assert rollout.steps == 6
    assert rollout.episode_length == [3, 3]
    assert rollout.episode_return == [3.0, 3.0]
    advantage = GAE(1.0, 1.0)(rollout, *half_values(rollout)).advantage
    assert advantage[rollout.mask].tolist() == [2.5, 1.5, 0.5, 2.5, 1.5, 0.5]
    assert advantage[rollout.mask].mean() == 1.5


def test_garbage_in_reset_rows_changes_nothing():
    source = vector_sampler("ToyEnds-v0", AutoresetMode.NEXT_STEP)
    rollout = source.collect(policy("ToyEnds-v0"), Need(steps=8))
    garbage = replace(rollout, reward=np.where(rollout.mask, rollout.reward, 1e6))
    value = np.where(rollout.mask, 0.5, 1e6)
    estimates = [
        GAE(0.9, 0.8)(rollout, *half_values(rollout)),
        GAE(0.9, 0.8)(garbage, value, np.full(value.shape, 0.5)),
    ]
    assert np.array_equal(estimates[0].advantage, estimates[1].advantage)
    returns = [RewardToGo(0.9)(each, None, None).advantage for each in (rollout, garbage)]
    assert np.array_equal(*returns)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, None])
def test_same_step_and_plain_list_give_the_numbers_of_next_step(mode):
    source = vector_sampler("ToyEnds-v0", mode) if mode else sampler("ToyEnds-v0")
    rollout = source.collect(policy("ToyEnds-v0"), Need(steps=6))
    assert rollout.mask.all()
    advantage = GAE(1.0, 1.0)(rollout, *half_values(rollout)).advantage
    assert advantage[0].tolist() == [2.5, 1.5, 0.5, 2.5, 1.5, 0.5]


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, None])
def test_a_time_limit_bootstraps_through_the_episodes_own_last_observation(mode):
    source = vector_sampler("ToyCut-v0", mode, 2) if mode else sampler("ToyCut-v0", 2)
    rollout = source.collect(policy("ToyCut-v0"), Need(steps=3))
    assert rollout.truncated[:, 2].all() and not rollout.terminated.any()
    assert sorted(rollout.bootstrap.row) == [0, 1]
    assert rollout.bootstrap.column.tolist() == [2, 2]
    # The final observation counts three steps and keeps its episode's start; a reset has step 0.
    assert rollout.bootstrap.observation[:, 1].tolist() == [3.0, 3.0]
    order = np.argsort(rollout.bootstrap.row)
    assert np.array_equal(rollout.bootstrap.observation[order, 0], rollout.observation[:, 0, 0])


def test_an_end_state_has_no_bootstrap_and_a_cut_rollout_has_one():
    source = sampler("ToyEnds-v0")
    rollout = source.collect(policy("ToyEnds-v0"), Need(steps=4))
    assert rollout.bootstrap.column.tolist() == [3]
    assert rollout.bootstrap.observation[0, 1] == 1.0
    assert rollout.episode_id[0].tolist() == [0, 0, 0, 1]
    assert not rollout.whole_episodes


def test_episodes_go_on_across_rollouts():
    source, actor = sampler("ToyEnds-v0"), policy("ToyEnds-v0")
    first = source.collect(actor, Need(steps=2))
    second = source.collect(actor, Need(steps=2))
    assert first.episode_return == [] and second.episode_return == [3.0]
    assert second.observation[0, 0, 1] == 2.0


def test_slots_start_from_their_own_seed():
    wide = sampler("ToyEnds-v0", n=3, seed=5).collect(policy("ToyEnds-v0"), Need(steps=1))
    alone = sampler("ToyEnds-v0", n=1, seed=7).collect(policy("ToyEnds-v0"), Need(steps=1))
    assert wide.observation[2, 0, 0] == alone.observation[0, 0, 0]
    assert len(set(wide.observation[:, 0, 0].tolist())) == 3


@pytest.mark.parametrize("n", [1, 3, 4, 9])
def test_a_group_shares_its_first_observation_and_groups_differ(n):
    source = sampler("ToyLong-v0", n)
    rollout = source.collect(policy("ToyLong-v0"), Need(groups=2, group_size=4))
    episode, firsts = rollout.episode_id[rollout.mask], []
    for k in range(8):
        own = rollout.observation[rollout.mask][episode == k]
        assert len(own) == 50
        firsts.append(own[own[:, 1] == 0][0, 0])
    assert len(set(firsts[:4])) == 1 and len(set(firsts[4:])) == 1
    assert firsts[0] != firsts[4]
    assert rollout.group_of_episode.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert rollout.steps == rollout.mask.sum() == 400
    assert rollout.episode_length == [50] * 8
    assert rollout.whole_episodes


def test_idle_slots_are_masked_and_not_counted():
    rollout = sampler("ToyEnds-v0", 2).collect(policy("ToyEnds-v0"), Need(groups=3))
    assert rollout.mask.sum(axis=1).tolist() in ([6, 3], [3, 6])
    assert rollout.steps == 9
    assert (rollout.episode_id[~rollout.mask] == -1).all()


def test_the_raw_action_is_kept_and_the_clipped_one_is_sent():
    source = sampler("ToyEcho-v0")
    actor = policy("ToyEcho-v0")
    actor.parameters[-1] = 1.0
    rollout = source.collect(actor, Need(steps=50))
    received = np.concatenate(source.slots.envs[0].unwrapped.received)
    raw = rollout.action[0, :, 0]
    assert (abs(raw) > 1).any()
    assert np.allclose(received, np.clip(raw, -1, 1))
    assert np.allclose(rollout.reward[0], np.clip(raw, -1, 1))


def test_case_8_the_log_prob_belongs_to_the_raw_action():
    from redline.algorithms.core.gaussians import DiagGaussian

    task = control_task("ToyEcho-v0")
    raw = np.array([[2.0]])
    assert task.to_env(raw)[0].tolist() == [1.0]
    log_prob = DiagGaussian(1).log_prob(np, (np.array([[0.5]]), np.zeros(1)), raw)
    assert log_prob == pytest.approx([-2.043939], abs=1e-6)


def test_discrete_observations_become_one_hot_and_actions_keep_their_start():
    rollout = sampler("ToyGrid-v0").collect(policy("ToyGrid-v0"), Need(steps=3))
    assert rollout.observation[0].argmax(axis=-1).tolist() == [0, 1, 2]
    assert set(rollout.action.ravel()) <= {0, 1, 2}


def test_an_error_names_environment_index_and_message():
    toys.Boom.made = 1
    with pytest.raises(EnvironmentFault, match=r"ToyBoom-v0: environment 1 of 2 .*tank empty 17"):
        sampler("ToyBoom-v0", 2).collect(policy("ToyLong-v0"), Need(steps=10))


def test_nan_names_environment_step_and_value():
    with pytest.raises(
        EnvironmentFault, match=r"ToyNan-v0: environment 0 of 1 gave the reward nan at step 4"
    ):
        sampler("ToyNan-v0").collect(policy("ToyNan-v0"), Need(steps=8))


def test_episodes_are_refused_on_vector_environments():
    source = sampler("CartPole-v1", 2, vectorization="vector")
    with pytest.raises(TaskError, match="--vectorization list, got 'vector'"):
        source.collect(policy("CartPole-v1"), Need(groups=2))


@pytest.mark.parametrize("kind", ["list", "sync", "vector"])
def test_every_kind_of_vectorization_collects(kind):
    source = sampler("CartPole-v1", 4, vectorization=kind)
    rollout = source.collect(policy("CartPole-v1"), Need(steps=60))
    assert rollout.observation.shape == (4, 60, 4)
    assert rollout.episode_length
    assert rollout.episode_return == [float(length) for length in rollout.episode_length]
    assert rollout.mask.all() == (kind != "vector")
    source.close()


def test_an_observation_of_another_shape_is_never_broadcast():
    with pytest.raises(EnvironmentFault, match=r"reset .*shape \(1,\), expected \(2,\)"):
        sampler("ToyMisshapen-v0").collect(policy("ToyEnds-v0"), Need(steps=4))


def test_an_environment_that_cannot_be_closed_loses_nothing(caplog):
    source = sampler("ToySticky-v0")
    assert source.collect(policy("ToySticky-v0"), Need(steps=4)).steps == 4
    source.close()
    assert "stuck" in caplog.text
