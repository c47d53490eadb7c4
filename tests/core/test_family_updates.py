"""Whole updates of the GRPO family: where its members must differ, and what one of them keeps."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from batches import DISTRIBUTIONS, START, make_policy, make_rollout
from closeness import identical

from redline.algorithms import registry
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.shaping import Shaping
from redline.algorithms.core.types import Progress, Rollout

EPISODES, LENGTH = 16, 6
FAMILY = ("grpo", "dapo", "dr_grpo", "dcpo", "gspo", "gmpo", "cispo", "sapo", "rloo")


def experience(seed: int = 0) -> Rollout:
    """Four groups of four, lengths 1 to 6, right or wrong at the end."""
    rng = np.random.default_rng(seed)
    mask = np.arange(LENGTH) < rng.integers(1, LENGTH + 1, size=EPISODES)[:, None]
    observation = rng.normal(size=(EPISODES, LENGTH, 3))
    action = make_policy(DISTRIBUTIONS["categorical"]).act(observation.reshape(-1, 3), rng)
    right = np.tile([1.0, 0.0, 0.0, 1.0], 4)[:EPISODES] * (np.arange(EPISODES) > 2)
    last = mask & ~np.pad(mask, ((0, 0), (0, 1)))[:, 1:]
    return make_rollout(
        last * right[:, None],
        mask,
        observation=observation,
        action=action.reshape(EPISODES, LENGTH),
        outcome=right,
        group_of_episode=np.arange(EPISODES) // 4,
        start_of_group=list("abcd"),
    )


def trained(name: str, steps: int, rollouts: int = 1, **more: Any) -> Any:
    """Parameters after some rollouts of `steps` optimiser steps each."""
    settings = {"group_size": 4, "epochs": steps, "minibatch_size": None, "lr": 0.05} | more
    method = replace(registry.get(name)(), **settings).build()
    policy = make_policy(DISTRIBUTIONS["categorical"])
    learner = Learner(method, policy, None, np.random.default_rng(0))
    for seed in range(rollouts):
        metrics = learner.update(experience(seed), Progress(seed, 10))
        assert np.isfinite(list(metrics.values())).all()
    return policy.snapshot()


def test_the_methods_differ_once_ratios_have_moved() -> None:
    found = {name: trained(name, 8) for name in FAMILY}
    for one in FAMILY:
        for other in FAMILY:
            same = np.array_equal(found[one], found[other])
            assert same == (one == other), (one, other)


def test_at_the_first_step_only_advantages_and_averages_differ() -> None:
    # A token mean of the same advantages: the clip, the weight and the gate have not acted yet.
    expected = trained("grpo", 1)
    for name in ("dapo", "cispo", "sapo"):
        identical(trained(name, 1), expected)
    for name in ("dr_grpo", "dcpo", "rloo", "gspo"):
        assert not np.array_equal(trained(name, 1), expected)


@pytest.mark.parametrize("schedule", ["adaptive", "reward-noise", "off-for", "entropy", "by-prob"])
def test_a_schedule_changes_what_is_learned(schedule: str) -> None:
    clip = Clip(0.1, 0.1, schedule, off_every=2)
    same = trained("grpo", 8, rollouts=3, clip=Clip(0.1, 0.1))
    assert not np.array_equal(trained("grpo", 8, rollouts=3, clip=clip), same)


def test_a_learner_that_was_saved_goes_on_with_its_memories() -> None:
    recipe = replace(
        registry.get("dcpo")(),
        group_size=4,
        epochs=3,
        lr=0.05,
        clip=Clip(0.2, 0.2, "adaptive+reward-noise+by-prob"),
    )

    def learner() -> Learner:
        policy = make_policy(DISTRIBUTIONS["categorical"])
        return Learner(recipe.build(), policy, None, np.random.default_rng(0))

    whole, cut = learner(), learner()
    for seed in (0, 1):
        whole.update(experience(seed), START)
        cut.update(experience(seed), START)
    again = learner()
    again.load_state_dict(cut.state_dict())
    again.rng.bit_generator.state = cut.rng.bit_generator.state
    first, second = (each.update(experience(2), START) for each in (whole, again))
    assert first == second
    identical(whole.policy.parameters, again.policy.parameters)
    # Without them it would not be the same.
    bare = learner()
    bare.policy.restore(cut.policy.snapshot())
    assert bare.update(experience(2), START)["train/clip_hi"] != first["train/clip_hi"]


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_the_entropy_bonus_keeps_every_sign(name: str) -> None:
    recipe = replace(registry.get(name)(), shaping=Shaping(entropy=5.0))
    method = recipe.build()
    assert method.needs_entropy and method.shaping.entropy == 5.0
    policy = make_policy(DISTRIBUTIONS["categorical"])
    rng = np.random.default_rng(1)
    from redline.envs.policies import MLPCritic

    critic = MLPCritic(3, (4,), "tanh", rng) if method.needs_critic else None
    metrics = Learner(method, policy, critic, rng).update(experience(), START)
    assert np.isfinite(list(metrics.values())).all()
