"""What delta limits: sb3-contrib's convention in its own code, and ours in the textbook's formula.

In float64 throughout, but for what sb3-contrib's buffer stores in float32 (advantages and old
log-probabilities), which leaves a relative difference of 1e-7.
"""

import copy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import sb3_contrib.common.utils
import torch
from batches import DISTRIBUTIONS, START, algorithm, make_batch, make_policy, objective_of
from closeness import close
from gymnasium import spaces
from sb3_contrib import TRPO as SB3TRPO
from sb3_contrib.common.utils import conjugate_gradient_solver
from sb3_parity import (
    HIDDEN,
    POLICY_SETTINGS,
    SLOTS,
    STEPS,
    WIDTH,
    Experience,
    Still,
    fill,
    flat_parameters,
)
from stable_baselines3.common.distributions import kl_divergence
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv
from torch_reference import reference

from redline.algorithms.core.distributions import Categorical, Distribution
from redline.algorithms.core.masked import standardise
from redline.algorithms.core.natural import FisherSolve, TrustRegion
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.types import Batch
from redline.envs.policies import MLPPolicy

# So few products that neither side's stopping rule, which differ, is reached.
ITERATIONS, DAMPING = 5, 0.1
OBJECTIVE = objective_of(algorithm("trpo"), Penalties())

NORMAL: Any = DISTRIBUTIONS["gaussian"]
SPACES: dict[str, tuple[spaces.Space[Any], Distribution, int]] = {
    "categorical": (spaces.Discrete(3), Categorical(3), 1),
    "box of 2": (spaces.Box(-1.0, 1.0, (2,)), replace(NORMAL, d=2), 2),
    "box of 3": (spaces.Box(-1.0, 1.0, (3,)), replace(NORMAL, d=3), 3),
}
every_space = pytest.mark.parametrize("space", SPACES)


@pytest.fixture(autouse=True)
def start_at_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """sb3-contrib starts its conjugate gradient at 1e-4 times noise, which the result keeps."""
    noise = SimpleNamespace(**{**vars(torch), "randn_like": torch.zeros_like})
    monkeypatch.setattr(sb3_contrib.common.utils, "th", noise)


class Doubled(torch.nn.Module):
    """Observations, which sb3 casts to float32, in float64."""

    def forward(self, x: Any) -> Any:
        return x.double()


class Setup(NamedTuple):
    """sb3-contrib's model with a filled buffer, and the same policy and batch of ours."""

    model: Any
    policy: MLPPolicy
    batch: Batch


def setup(space: str, delta: float, seed: int = 11) -> Setup:
    action_space, distribution, _ = SPACES[space]
    torch.manual_seed(seed)
    model = SB3TRPO(
        "MlpPolicy",
        DummyVecEnv([lambda: Still(action_space)] * SLOTS),
        n_steps=STEPS,
        batch_size=SLOTS * STEPS,
        cg_max_steps=ITERATIONS,
        cg_damping=DAMPING,
        target_kl=delta,
        n_critic_updates=1,
        policy_kwargs=POLICY_SETTINGS,
        device="cpu",
    )
    model.set_logger(Logger(None, []))
    model.policy.double()
    for name in ("features_extractor", "pi_features_extractor", "vf_features_extractor"):
        setattr(model.policy, name, Doubled())
    with torch.no_grad():  # means far from 0 and spreads far from 1, which differ per dimension
        for parameter in model.policy.action_net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        if hasattr(model.policy, "log_std"):
            model.policy.log_std.add_(0.4 * torch.randn_like(model.policy.log_std))
    fill(model, Experience(action_space, seed))
    rng = np.random.default_rng(0)
    policy = MLPPolicy(WIDTH, distribution, HIDDEN, "tanh", rng, dtype=np.float64)
    policy.restore(flat_parameters(model, "policy_net", "action_net"))
    data = next(model.rollout_buffer.get(None))
    discrete = isinstance(action_space, spaces.Discrete)
    action = data.actions.long().flatten() if discrete else data.actions.double()
    batch = Batch(
        data.observations.double().numpy(),
        action.numpy(),
        data.old_log_prob.double().numpy(),
        standardise(data.advantages.double().numpy()),
        np.ones(len(action), dtype=bool),
    )
    old = policy.evaluate(batch)
    close(old.log_prob, batch.old_log_prob, rtol=1e-5, atol=1e-6)
    fields = (batch.observation, batch.action, batch.old_log_prob, batch.advantage, batch.mask)
    return Setup(model, policy, Batch(*fields, old.params))


def their_direction(model: Any, batch: Batch) -> tuple[Any, float]:
    """x and x'(F + damping I)x by the methods of sb3-contrib's TRPO, in our order of parameters."""
    observation, action = map(torch.as_tensor, (batch.observation, batch.action))
    with torch.no_grad():  # a copy, for the model has one distribution that it fills again
        old = copy.copy(model.policy.get_distribution(observation))
    distribution = model.policy.get_distribution(observation)
    ratio = torch.exp(distribution.log_prob(action) - torch.as_tensor(batch.old_log_prob))
    objective = (torch.as_tensor(batch.advantage) * ratio).mean()
    kl = kl_divergence(distribution, old).mean()
    actor, gradient, grad_kl, _ = model._compute_actor_grad(kl, objective)
    product = partial(model.hessian_vector_product, actor, grad_kl)
    x = conjugate_gradient_solver(product, gradient, max_iter=ITERATIONS)
    quadratic = float(x @ product(x))
    before, start = [p.detach().clone() for p in actor], 0
    with torch.no_grad():
        for parameter in actor:
            piece = x[start : start + parameter.numel()].view(parameter.shape)
            parameter.copy_(piece)
            start += parameter.numel()
        flat = flat_parameters(model, "policy_net", "action_net").copy()
        for parameter, value in zip(actor, before, strict=True):
            parameter.copy_(value)
    return flat, quadratic


def our_direction(policy: MLPPolicy, batch: Batch, convention: Any) -> tuple[Any, float]:
    OBJECTIVE.gradient(policy, batch)
    solve = FisherSolve("cg", ITERATIONS, DAMPING, kl_convention=convention)
    return solve.solve(policy, batch, policy.gradient_buffer.copy(), np.random.default_rng(0))


def apart(ours: Any, theirs: Any) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


@every_space
def test_the_search_direction_is_sb3_contribs(space: str) -> None:
    model, policy, batch = setup(space, 0.01)
    theirs, their_quadratic = their_direction(model, batch)
    ours, quadratic = our_direction(policy, batch, "sb3")
    assert apart(ours, theirs) <= 3e-6
    close(quadratic, their_quadratic, rtol=3e-6)
    true, _ = our_direction(policy, batch, "true")
    # One choice has no dimensions to average over; on Box actions damping tells them apart.
    assert (apart(true, theirs) <= 3e-6) == (space == "categorical")
    if space != "categorical":
        assert apart(true / np.linalg.norm(true), theirs / np.linalg.norm(theirs)) > 0.05


@pytest.mark.parametrize("delta", [0.01, 0.3])
@every_space
def test_the_accepted_step_and_its_kl_are_sb3_contribs(space: str, delta: float) -> None:
    model, policy, batch = setup(space, delta)
    start = policy.snapshot()
    rule = TrustRegion(delta, fisher=FisherSolve("cg", ITERATIONS, DAMPING, kl_convention="sb3"))
    rng = np.random.default_rng(0)
    _, metrics = rule.update({}, policy, batch, OBJECTIVE, START, rng)
    model.train()
    logged = model.logger.name_to_value
    assert metrics["train/step_accepted"] == logged["train/is_line_search_success"] == 1.0
    theirs = flat_parameters(model, "policy_net", "action_net") - start
    assert apart(policy.parameters - start, theirs) <= 3e-6
    kl = rule.fisher.mean_kl(policy, batch, policy.evaluate(batch))
    close(kl, logged["train/kl_divergence_loss"], rtol=3e-6)
    assert kl <= delta


@every_space
def test_the_two_conventions_of_the_mean_kl(space: str) -> None:
    _, policy, batch = setup(space, 0.01)
    start = torch.tensor(policy.snapshot())
    policy.parameters += np.random.default_rng(1).normal(0.0, 0.1, policy.parameters.shape)
    evaluation = policy.evaluate(batch)
    old = reference(policy, start, batch.observation)
    new = reference(policy, torch.tensor(policy.parameters), batch.observation)
    true = FisherSolve().mean_kl(policy, batch, evaluation)
    theirs = FisherSolve(kl_convention="sb3").mean_kl(policy, batch, evaluation)
    # Reference.kl_to sums over the dimensions of an action.
    close(true, float(old.kl_to(new).mean()), rtol=1e-9)
    close(theirs, float(new.kl_to(old).mean()) / SPACES[space][2], rtol=1e-9)
    assert abs(true - theirs) > 1e-4 * true


def test_several_choices_are_summed_in_both_conventions() -> None:
    policy = make_policy(DISTRIBUTIONS["multi_categorical"])
    batch = make_batch(policy)
    evaluation = policy.evaluate(batch)
    theirs = FisherSolve(kl_convention="sb3").mean_kl(policy, batch, evaluation)
    close(theirs, policy.kl(batch, evaluation, reverse=True)[batch.mask].mean())


def test_delta_in_their_convention_is_as_many_times_larger_as_there_are_dimensions() -> None:
    steps = {}
    for convention, delta, damping in (("sb3", 0.01, 0.1), ("true", 0.03, 0.3)):
        _, policy, batch = setup("box of 3", 0.01)
        start = policy.snapshot()
        fisher = FisherSolve("cg", ITERATIONS, damping, kl_convention=convention)  # type: ignore[arg-type]
        rule = TrustRegion(delta, fisher=fisher)
        rule.update({}, policy, batch, OBJECTIVE, START, np.random.default_rng(0))
        steps[convention] = policy.parameters - start
    close(steps["sb3"], steps["true"], rtol=1e-9, atol=1e-14)
