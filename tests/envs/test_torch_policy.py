"""The torch policy is the numpy policy: same numbers, same storage contract, any module."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from batches import DISTRIBUTIONS, algorithm, make_batch, make_policy, objective_of
from closeness import close, identical, to_numpy
from torch import nn

from redline.algorithms.core.autograd import AutogradCritic
from redline.algorithms.core.distributions import Categorical
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.types import Batch, KLTerm
from redline.benchmark import checkpoint
from redline.envs.policies import MLPCritic, MLPPolicy
from redline.envs.tasks import TaskError
from redline.envs.torch_policies import TorchCritic, TorchPolicy, require_device

SPACES = tuple(DISTRIBUTIONS)
HIDDEN = (7, 5)
SHAPES = ((30,), (5, 8))
# Largest error against the numpy policy, relative and absolute.
PRECISION = {np.float64: 1e-10, np.float32: 1e-6}


def pair(space: str, activation: Any, dtype: Any) -> tuple[MLPPolicy, TorchPolicy]:
    """Numpy and torch policy with the same parameters, away from the initial ones."""
    distribution = DISTRIBUTIONS[space]
    numpy = MLPPolicy(3, distribution, HIDDEN, activation, np.random.default_rng(0), dtype=dtype)
    numpy.restore(make_policy(distribution, activation).parameters)
    torch_policy = TorchPolicy.mlp(
        3, distribution, HIDDEN, activation, np.random.default_rng(9), dtype=dtype
    )
    torch_policy.restore(numpy.parameters)
    return numpy, torch_policy


def on(policy: Any, batch: Batch) -> Batch:
    """The batch as arrays of the policy."""
    fields = (batch.observation, batch.action, batch.old_log_prob, batch.advantage, batch.mask)
    reference = tuple(policy.asarray(part) for part in batch.reference)
    return Batch(*map(policy.asarray, fields), reference, policy.asarray(batch.anchor_log_prob))


def gradients(space: str, activation: Any, dtype: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The gradient of everything at once: surrogate, both penalties and the exact KL term."""
    both = pair(space, activation, dtype)
    batch = make_batch(make_policy(DISTRIBUTIONS[space], activation), shape)
    factor = np.where(batch.mask, np.random.default_rng(3).uniform(0.1, 1.0, shape), 0.0)
    objective = objective_of(algorithm("ppo"), Penalties(0.3, 0.7, "k3"))
    found = []
    for policy in both:
        mine = on(policy, batch)
        objective.gradient(policy, mine)
        first = policy.gradient_buffer + 0.0
        term = KLTerm(lambda kl, policy=policy: policy.asarray(factor))
        policy.gradient(mine, policy.xp.zeros_like, kl=term)
        found.append((first, policy.gradient_buffer + 0.0))
    return found[0], found[1]


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("space", SPACES)
class TestParity:
    def test_evaluation_and_kl(
        self, space: str, activation: Any, shape: tuple[int, ...], dtype: Any
    ) -> None:
        numpy, torch_policy = pair(space, activation, dtype)
        batch = make_batch(make_policy(DISTRIBUTIONS[space], activation), shape)
        ours, theirs = on(numpy, batch), on(torch_policy, batch)
        expected, actual = numpy.evaluate(ours), torch_policy.evaluate(theirs)
        limit = PRECISION[dtype]
        for mine, other in zip(
            (actual.log_prob, actual.entropy, *actual.params),
            (expected.log_prob, expected.entropy, *expected.params),
            strict=True,
        ):
            close(mine[theirs.mask], other[batch.mask], rtol=limit, atol=limit)
        kl = torch_policy.kl(theirs)
        close(kl[theirs.mask], numpy.kl(ours)[batch.mask], rtol=limit, atol=limit)
        identical(torch_policy.kl(theirs, actual), kl)
        assert kl.max() > 0.01

    def test_gradient(
        self, space: str, activation: Any, shape: tuple[int, ...], dtype: Any
    ) -> None:
        limit = PRECISION[dtype]
        expected, actual = gradients(space, activation, dtype, shape)
        for mine, other in zip(actual, expected, strict=True):
            # Of the whole gradient: elements that are small are sums of terms that are not.
            close(mine, other, rtol=limit, atol=10.0 * limit * max(1.0, np.abs(other).max()))
            assert np.abs(other).max() > 0.01

    def test_fisher_product(
        self, space: str, activation: Any, shape: tuple[int, ...], dtype: Any
    ) -> None:
        numpy, torch_policy = pair(space, activation, dtype)
        batch = make_batch(make_policy(DISTRIBUTIONS[space], activation), shape)
        products = [policy.fisher_product(on(policy, batch)) for policy in (numpy, torch_policy)]
        limit = PRECISION[dtype]
        for seed in range(2):
            v = np.random.default_rng(seed).normal(size=numpy.parameters.shape)
            expected, actual = (
                product(policy.asarray(v))
                for product, policy in zip(products, (numpy, torch_policy), strict=True)
            )
            close(actual, expected, rtol=limit, atol=limit)


@pytest.mark.parametrize("space", SPACES)
def test_one_seed_gives_both_the_same_start_and_the_same_actions(space: str) -> None:
    distribution = DISTRIBUTIONS[space]
    numpy = MLPPolicy(3, distribution, HIDDEN, "tanh", np.random.default_rng(4), log_std=-0.5)
    other = TorchPolicy.mlp(3, distribution, HIDDEN, "tanh", np.random.default_rng(4), log_std=-0.5)
    identical(other.parameters, numpy.parameters)
    observation = np.random.default_rng(5).normal(size=(20, 3)).astype(np.float32)
    for rng in (lambda: None, lambda: np.random.default_rng(6)):
        close(other.act(observation, rng()), numpy.act(observation, rng()), rtol=1e-6, atol=1e-6)


def test_the_critics_agree() -> None:
    rng = np.random.default_rng(7)
    numpy = MLPCritic(3, HIDDEN, "tanh", np.random.default_rng(8), dtype=np.float64)
    other = TorchCritic.mlp(3, HIDDEN, "tanh", np.random.default_rng(8), dtype=np.float64)
    identical(other.parameters, numpy.parameters)
    observation, returns, mask = rng.normal(size=(9, 3)), rng.normal(size=9), rng.random(9) < 0.6
    close(other.values(observation, mask), numpy.values(observation, mask))
    garbage = np.where(mask, returns, np.nan)
    expected = numpy.gradient(observation, garbage, mask)
    assert other.gradient(observation, garbage, mask) == pytest.approx(expected, rel=1e-12)
    close(other.gradient_buffer, numpy.gradient_buffer, atol=1e-13)


@pytest.mark.parametrize("kind", [0, 1])
def test_the_old_parameters_do_not_follow_the_policy(kind: int) -> None:
    policy = pair("gaussian", "tanh", np.float64)[kind]
    batch = on(policy, make_batch(make_policy(DISTRIBUTIONS["gaussian"]), (30,)))
    old = policy.evaluate(batch).params
    before = to_numpy(old[1]).copy()
    policy.parameters[:] = policy.parameters + 1.0
    identical(to_numpy(old[1]), before)


@pytest.mark.parametrize("space", SPACES)
def test_padding_is_inert(space: str) -> None:
    policy = pair(space, "tanh", np.float64)[1]
    batch = on(policy, make_batch(make_policy(DISTRIBUTIONS[space])))
    objective = objective_of(algorithm("ppo"), Penalties(0.1, 0.2, "k3"))

    def fill(tensor: Any, value: float = 1e6) -> Any:
        mask = batch.mask.reshape(batch.mask.shape + (1,) * (tensor.ndim - 2))
        return torch.where(mask, tensor, torch.full_like(tensor, value))

    dirty = Batch(
        fill(batch.observation),
        fill(batch.action, float("inf") if space == "gaussian" else 1e6),
        fill(batch.old_log_prob),
        fill(batch.advantage),
        batch.mask,
        tuple(map(fill, batch.reference)),
        fill(batch.anchor_log_prob),
    )
    v = torch.ones_like(policy.parameters)
    results = []
    for one in (batch, dirty):
        objective.gradient(policy, one)
        results.append((policy.gradient_buffer.clone(), policy.fisher_product(one)(v)))
    for clean, filled in zip(*results, strict=True):
        close(filled, clean, atol=1e-12)


def test_a_snapshot_comes_back_bit_for_bit() -> None:
    policy = pair("gaussian", "tanh", np.float32)[1]
    start = policy.snapshot()
    expected = start.clone()
    weight = next(policy.module.parameters())
    policy.parameters += 0.1
    identical(weight.reshape(-1), policy.parameters[: weight.numel()])  # the module's own storage
    policy.restore(start)
    identical(policy.parameters, expected)
    identical(weight.reshape(-1), expected[: weight.numel()])


def test_the_optimiser_goes_on_from_a_checkpoint_and_from_numpy(tmp_path: Path) -> None:
    numpy, other = pair("categorical", "tanh", np.float64)
    again = pair("categorical", "tanh", np.float64)[1]
    steps = [policy.optimizer(1e-5) for policy in (numpy, other, again)]

    def step(number: int, lr: float) -> None:
        policy = (numpy, other, again)[number]
        gradient = np.random.default_rng(int(lr * 1000)).normal(size=numpy.parameters.shape)
        policy.gradient_buffer[:] = policy.asarray(gradient)
        steps[number].step(lr)

    for lr in (0.01, 0.02):
        step(0, lr), step(1, lr)
    checkpoint.save(tmp_path, {"adam": steps[1].state_dict(), "policy": other.snapshot()})
    state = checkpoint.load(tmp_path)
    again.restore(state["policy"])
    steps[2].load_state_dict(state["adam"])
    step(0, 0.03), step(1, 0.03), step(2, 0.03)
    identical(again.parameters, other.parameters)
    close(other.parameters, numpy.parameters)
    steps[2].load_state_dict(steps[0].state_dict())
    steps[0].load_state_dict(steps[1].state_dict())
    step(0, 0.04), step(1, 0.04), step(2, 0.04)
    close(again.parameters, other.parameters)
    close(other.parameters, numpy.parameters)


def test_any_module_will_do_and_frozen_parameters_stay() -> None:
    module = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 4)).double()
    module[0].requires_grad_(False)
    frozen = module[0].weight.clone()
    policy = TorchPolicy(module, Categorical(4))
    assert policy.parameters.shape == (6 * 4 + 4,)
    batch = on(policy, make_batch(make_policy(Categorical(4))))
    batch = Batch(
        batch.observation,
        batch.action,
        policy.evaluate(batch).log_prob,
        batch.advantage,
        batch.mask,
    )
    objective = objective_of(algorithm("ppo"))
    module.zero_grad()  # drops the gradients that the flat tensor is made of
    seen = []
    objective.gradient(policy, batch, lambda _, weights, __: seen.append(weights.ratio))
    assert (seen[0][batch.mask] == 1.0).all()  # no dropout between pi and pi_old
    assert policy.gradient_buffer.abs().max() > 0.0
    policy.optimizer(1e-5).step(0.1)
    identical(module[0].weight, frozen)
    assert not torch.equal(policy.evaluate(batch).log_prob, batch.old_log_prob)


def test_log_probs_of_a_bfloat16_module_are_float32() -> None:
    module = nn.Linear(3, 4).to(torch.bfloat16)
    policy = TorchPolicy(module, Categorical(4))
    batch = on(policy, make_batch(make_policy(Categorical(4))))
    evaluation = policy.evaluate(batch)
    assert {evaluation.log_prob.dtype, policy.kl(batch).dtype} == {torch.float32}
    objective_of(algorithm("ppo")).gradient(policy, batch)
    assert policy.gradient_buffer.dtype == torch.bfloat16
    critic = AutogradCritic(nn.Linear(3, 1).to(torch.bfloat16))
    assert critic.values(batch.observation, batch.mask).dtype == np.float32


@pytest.mark.parametrize(
    ("module", "found"),
    [
        (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4).double()), "float32 on cpu, torch.float64"),
        (nn.Linear(3, 4).requires_grad_(False), "found none"),
    ],
)
def test_a_module_that_cannot_be_flat_is_refused(module: nn.Module, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        TorchPolicy(module, Categorical(4))


@pytest.mark.parametrize("name", ["banana", "cuda:99", "meta"])
def test_a_missing_device_is_one_sentence(name: str) -> None:
    with pytest.raises(TaskError, match=f"device '{name}' cannot be used: ") as caught:
        require_device(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("space", SPACES)
def test_an_observation_of_another_precision_is_acted_on(space: str) -> None:
    observation = np.random.default_rng(0).normal(size=(4, 3))
    for policy in pair(space, "tanh", np.float32):
        for rng in (None, 1):
            draws = [None if rng is None else np.random.default_rng(rng) for _ in range(2)]
            wide = policy.act(observation, draws[0])
            identical(wide, policy.act(observation.astype(np.float32), draws[1]))
