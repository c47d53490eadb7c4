"""What a close look at an update shows, by hand on few numbers, and that it changes nothing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from batches import DISTRIBUTIONS, algorithm, make_batch, make_policy, objective_of
from closeness import close

from redline.algorithms.core.closeup import CloseUp, clip_bias
from redline.algorithms.core.distributions import Categorical
from redline.algorithms.core.gaussians import DiagGaussian
from redline.algorithms.core.types import Batch
from redline.envs.policies import MLPPolicy


def test_the_clips_bias_is_what_it_removes() -> None:
    """The difference of the two gradients, by way of the surrogates themselves."""
    policy = make_policy(Categorical(4))
    batch = make_batch(policy, by=0.5)
    clipped, plain = objective_of(algorithm("ppo")), objective_of(algorithm("ppo"))
    plain = replace(plain, surrogate=algorithm("trpo").surrogate, bounds=None)
    gradients = []
    for objective in (clipped, plain):
        objective.gradient(policy, batch)
        gradients.append(policy.gradient_buffer.copy())
    bias = gradients[0] - gradients[1]
    found = clip_bias(policy, batch, clipped)
    assert np.linalg.norm(bias) > 0.0
    close(found["train/clip_bias"], np.linalg.norm(bias), rtol=1e-9)
    cosine = bias @ gradients[0] / np.linalg.norm(bias) / np.linalg.norm(gradients[0])
    close(found["train/clip_bias_cosine"], cosine, rtol=1e-9)


@pytest.mark.parametrize(("sign", "part"), [(1.0, "high"), (-1.0, "low")])
def test_the_bias_has_a_part_above_and_one_below(sign: float, part: str) -> None:
    policy = make_policy(Categorical(4))
    batch = make_batch(policy, by=0.5)
    batch = batch.with_advantage(sign * np.abs(batch.advantage))
    found = clip_bias(policy, batch, objective_of(algorithm("ppo")))
    other = {"high": "low", "low": "high"}[part]
    assert found[f"train/clip_bias_{part}"] == found["train/clip_bias"] > 0.0
    assert found[f"train/clip_bias_{other}"] == 0.0


def test_the_bias_of_advantages_that_know_no_action() -> None:
    """E over a fair coin of A in {-1, 1}: mu E[grad r below; 0 inside; -grad r above], mu = 1/2."""
    policy = make_policy(Categorical(4))
    batch = make_batch(policy, (400,), by=0.5)
    objective = objective_of(algorithm("ppo"))

    def bias(advantage: float) -> Any:
        one = batch.with_advantage(np.full_like(batch.advantage, advantage))
        objective.gradient(policy, one)
        clipped = policy.gradient_buffer.copy()
        plain = replace(objective, surrogate=algorithm("trpo").surrogate, bounds=None)
        plain.gradient(policy, one)
        return clipped - policy.gradient_buffer

    ratio = np.exp(policy.evaluate(batch).log_prob - batch.old_log_prob)
    weight = np.where(ratio < 0.8, ratio, np.where(ratio > 1.2, -ratio, 0.0)) / ratio.size
    policy.gradient(batch, lambda log_prob: weight)  # grad r = r grad log pi
    expected = 0.5 * policy.gradient_buffer
    close(0.5 * (bias(1.0) + bias(-1.0)), expected, atol=1e-12)


def test_a_method_without_a_clip_has_no_bias() -> None:
    policy = make_policy(Categorical(4))
    found = clip_bias(policy, make_batch(policy, by=0.5), objective_of(algorithm("reinforce")))
    assert set(found.values()) == {0.0}


@pytest.mark.parametrize("space", ["categorical", "gaussian"])
def test_layers_cover_the_parameters_and_their_norms_add_up(space: str) -> None:
    policy = make_policy(DISTRIBUTIONS[space])
    parts = [part for parts in policy.layers.values() for part in parts]
    covered = np.concatenate([np.arange(len(policy.parameters))[part] for part in parts])
    assert covered.tolist() == list(range(len(policy.parameters)))
    look = CloseUp()
    batch = make_batch(policy, (30,))
    look.begin(batch)
    objective = replace(objective_of(algorithm("ppo")), watch=look)
    objective.gradient(policy, batch)
    whole = np.linalg.norm(policy.gradient_buffer)
    found = look.metrics(policy, batch, objective)
    norms = [value for name, value in found.items() if name.startswith("train/grad_norm/")]
    close(np.linalg.norm(norms), whole, rtol=1e-6)
    names = ["layer_1", "layer_2", "layer_3"] + (["log_std"] if space == "gaussian" else [])
    assert list(policy.layers) == names


def test_torch_has_the_same_layers() -> None:
    from redline.envs.torch_policies import TorchPolicy

    rng = np.random.default_rng
    shared: Any = (3, DiagGaussian(2), (5, 4), "tanh")
    ours, theirs = MLPPolicy(*shared, rng(0)), TorchPolicy.mlp(*shared, rng(0))
    sizes = [
        {
            name: sum(part.stop - part.start for part in parts)
            for name, parts in policy.layers.items()
        }
        for policy in (ours, theirs)
    ]
    assert sizes[0] == sizes[1] == {"layer_1": 20, "layer_2": 24, "layer_3": 10, "log_std": 2}


def moved(policy: MLPPolicy, by: float) -> None:
    policy.parameters[:] = policy.parameters + by


def test_followed_actions_are_compared_from_update_to_update() -> None:
    policy = make_policy(Categorical(4))
    batch = make_batch(policy, (50,), by=0.0)
    objective, look = objective_of(algorithm("trpo")), CloseUp()
    some = np.unique(np.linspace(0, 49, 10).round().astype(int))
    last = policy.evaluate(batch).log_prob[some]
    for update in range(3):
        look.begin(batch if update == 0 else make_batch(policy, (20,)))
        steps = []
        for _ in range(2):
            moved(policy, 0.05)
            look.passed(policy)
            steps.append(policy.evaluate(batch).log_prob[some])
        found = look.metrics(policy, batch, objective)
        ratios = [found[f"follow/{i}"] for i in range(10)]
        close(ratios, np.exp(steps[1] - last), rtol=1e-12)
        every = np.exp(np.diff([last, *steps], axis=0))
        close(found["train/followed_low"], every.min(), rtol=1e-12)
        close(found["train/followed_high"], every.max(), rtol=1e-12)
        last = steps[1]


def test_of_rows_that_stay_whole_one_element_each_is_followed() -> None:
    policy = make_policy(Categorical(4))
    batch = make_batch(policy, (6, 9))
    look = CloseUp()
    look.begin(batch)
    found = look.metrics(policy, batch, objective_of(algorithm("trpo")))
    assert len([name for name in found if name.startswith("follow/")]) == 6


def test_what_is_followed_survives() -> None:
    policy = make_policy(Categorical(4))
    batch: Batch = make_batch(policy, (50,))
    objective = objective_of(algorithm("ppo"))
    first, second = CloseUp(), CloseUp()
    first.begin(batch)
    first.metrics(policy, batch, objective)
    second.load_state_dict(first.state_dict(), policy)
    found = []
    moved(policy, 0.1)
    for look in (first, second):
        look.begin(make_batch(policy, (20,), seed=5))
        found.append(look.metrics(policy, batch, objective))
    assert found[0] == found[1]
    CloseUp().load_state_dict(CloseUp().state_dict(), policy)
