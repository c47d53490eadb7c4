"""Numpy policy and critic for control: the fast path on a CPU, for every method."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from redline.algorithms.core.contracts import Optimizer
from redline.algorithms.core.distributions import Distribution
from redline.algorithms.core.types import Array, Batch, Evaluation, KLTerm, Params
from redline.envs.network import Activation, Adam, FloatArray, Network


class _Flat:
    """Flat parameters and gradient with exact copies."""

    per_element = True
    parameters: FloatArray
    gradient_buffer: FloatArray

    def _allocate(self, size: int, dtype: Any) -> None:
        self.parameters = np.zeros(size, dtype=dtype)
        self.gradient_buffer = np.zeros(size, dtype=dtype)

    def asarray(self, value: Array) -> Array:
        """Floating arrays in the precision of the parameters, others as they are."""
        array = np.asarray(value)
        return array.astype(self.parameters.dtype, copy=False) if array.dtype.kind == "f" else array

    def optimizer(self, eps: float) -> Optimizer:
        """Adam on the flat buffers."""
        return Adam(self.parameters, self.gradient_buffer, eps)

    def snapshot(self) -> FloatArray:
        """A copy of the parameters."""
        return self.parameters.copy()

    def restore(self, snapshot: Array) -> None:
        """Put a snapshot back, bit for bit."""
        self.parameters[:] = snapshot


class MLPPolicy(_Flat):
    """pi(a|s) from a multilayer perceptron, with analytic gradient and Fisher products.

    Args:
        observation_size: Length of an observation.
        distribution: Action distribution.
        hidden: Widths of the hidden layers.
        activation: "tanh" or "relu".
        rng: Draws the initial weights (orthogonal; the output layer has gain 0.01).
        log_std: Initial log standard deviation on Box actions.
        dtype: float32, or float64 for exact tests.
    """

    xp = np

    def __init__(
        self,
        observation_size: int,
        distribution: Distribution,
        hidden: Sequence[int],
        activation: Activation,
        rng: np.random.Generator,
        log_std: float = 0.0,
        dtype: Any = np.float32,
    ) -> None:
        self.distribution = distribution
        self.network = Network((observation_size, *hidden, distribution.width), activation)
        extra = distribution.width if distribution.has_log_std else 0
        self._allocate(self.network.size + extra, dtype)
        self._bind()
        self.network.initialise(rng, output_gain=0.01)
        self._log_std[:] = log_std

    def _bind(self) -> None:
        split = self.network.size
        self.network.bind(self.parameters[:split], self.gradient_buffer[:split])
        self._log_std = self.parameters[split:]

    @property
    def layers(self) -> dict[str, list[slice]]:
        """Where each layer, and the log standard deviation, lies in the flat vectors."""
        found = self.network.layers
        if self.distribution.has_log_std:
            found["log_std"] = [slice(self.network.size, len(self.parameters))]
        return found

    def copy(self) -> Self:
        """See `redline.algorithms.core.contracts.Policy`."""
        twin = copy.copy(self)
        twin.network = Network(self.network.sizes, self.network.activation)
        twin._allocate(len(self.parameters), self.parameters.dtype)
        twin._bind()
        twin.restore(self.parameters)
        return twin

    def _raw(self, output: FloatArray) -> Params:
        # A copy: parameters of pi_old must not follow the policy.
        return (output, self._log_std.copy()) if self.distribution.has_log_std else (output,)

    def act(self, observation: Array, rng: np.random.Generator | None) -> Array:
        """One action per row of `observation` [N, D]; the mode when `rng` is None."""
        if observation.dtype != self.parameters.dtype:
            observation = self.asarray(observation)
        output = self.network(observation)
        raw = (output, self._log_std) if self.distribution.has_log_std else (output,)
        if rng is None:
            return self.distribution.mode(raw)
        return self.distribution.sample(raw, rng)

    def predict(self, observation: Array) -> Params:
        """See `redline.algorithms.core.contracts.Policy`."""
        return self.distribution.params(np, self._raw(self.network(self.asarray(observation))))

    def evaluate(self, batch: Batch) -> Evaluation:
        """See `redline.algorithms.core.contracts.Policy`."""
        shape, observation, action, _ = _flatten(batch)
        raw = self._raw(self.network(observation))
        params = self.distribution.params(np, raw)
        log_prob = self.distribution.log_prob(np, params, action)
        entropy = self.distribution.entropy(np, params)
        per_element = tuple(
            np.broadcast_to(part, log_prob.shape + part.shape[-1:]).reshape(*shape, -1)
            for part in params
        )
        return Evaluation(log_prob.reshape(shape), entropy.reshape(shape), per_element)

    def gradient(
        self,
        batch: Batch,
        weigh: Callable[[Array], Array],
        entropy: Array | None = None,
        kl: KLTerm | None = None,
    ) -> None:
        """See `redline.algorithms.core.contracts.Policy`."""
        shape, observation, action, reference = _flatten(batch)
        dist = self.distribution
        params = dist.params(np, self._raw(self.network.forward(observation)))
        log_prob = dist.log_prob(np, params, action)
        weight = weigh(log_prob.reshape(shape)).reshape(-1)
        terms = [dist.score(params, action, weight)]
        if entropy is not None:
            terms.append(dist.entropy_gradient(params, entropy.reshape(-1)))
        if kl is not None:
            pair = (params, reference) if kl.reverse else (reference, params)
            divergence = dist.kl(np, *pair)
            penalty = -kl.coefficient(divergence.reshape(shape)).reshape(-1)
            derivative = dist.reverse_kl_gradient if kl.reverse else dist.kl_gradient
            terms.append(derivative(reference, params, penalty))
        delta = functools.reduce(lambda a, b: tuple(map(np.add, a, b)), terms)
        self.network.backward(delta[0])
        if dist.has_log_std:
            # A product with ones is far quicker than a sum over the first axis.
            ones = np.ones(len(delta[1]), dtype=delta[1].dtype)
            np.dot(ones, delta[1], out=self.gradient_buffer[self.network.size :])

    def kl(
        self, batch: Batch, evaluation: Evaluation | None = None, reverse: bool = False
    ) -> Array:
        """See `redline.algorithms.core.contracts.Policy`."""
        new = (evaluation or self.evaluate(batch)).params
        pair = (new, batch.reference) if reverse else (batch.reference, new)
        return self.distribution.kl(np, *pair)

    def fisher_product(self, batch: Batch) -> Callable[[Array], Array]:
        """v -> J' M J v / N over the valid elements: M the Fisher matrix of the distribution."""
        observation = batch.observation[batch.mask] if batch.mask.ndim > 1 else batch.observation
        dist, split = self.distribution, self.network.size
        params = dist.params(np, self._raw(self.network.forward(observation)))
        count = len(observation)

        def product(v: Array) -> Array:
            tangent: Params = (self.network.jvp(v[:split]),)
            if dist.has_log_std:
                tangent += (v[split:],)
            image = dist.metric(np, params, tangent)
            result = np.empty_like(v)
            result[:split] = self.network.vjp(image[0])
            result[:split] /= count
            if dist.has_log_std:
                result[split:] = image[1]
            return result

        return product


class MLPCritic(_Flat):
    """V(s) from a multilayer perceptron of its own.

    Args:
        observation_size: Length of an observation.
        hidden: Widths of the hidden layers.
        activation: "tanh" or "relu".
        rng: Draws the initial weights (orthogonal; the output layer has gain 1).
        dtype: float32, or float64 for exact tests.
    """

    def __init__(
        self,
        observation_size: int,
        hidden: Sequence[int],
        activation: Activation,
        rng: np.random.Generator,
        dtype: Any = np.float32,
    ) -> None:
        self.network = Network((observation_size, *hidden, 1), activation)
        self._allocate(self.network.size, dtype)
        self.network.bind(self.parameters, self.gradient_buffer)
        self.network.initialise(rng, output_gain=1.0)

    def values(self, observation: Array, mask: Array) -> Array:
        """V [...] for observations [..., D] and a mask [...]."""
        flat = self.asarray(observation.reshape(-1, observation.shape[-1]))
        return self.network(flat)[:, 0].reshape(mask.shape)

    def gradient(self, observation: Array, returns: Array, mask: Array) -> float:
        """Fill the gradient buffer with -d/d theta of mean (V - returns)^2; gives the mean."""
        error = self.asarray(returns) - self.network.forward(self.asarray(observation))[:, 0]
        if not mask.all():
            error = np.where(mask, error, np.zeros_like(error))
        count = max(1, int(np.count_nonzero(mask)))
        self.network.backward((error * (2.0 / count))[:, None])
        return float(error @ error) / count


def _flatten(batch: Batch) -> tuple[tuple[int, ...], Array, Array, Params]:
    """The batch's leading shape; observation, action and reference with one leading axis."""
    shape = batch.mask.shape
    if len(shape) == 1:
        return shape, batch.observation, batch.action, batch.reference

    def merge(field: Array) -> Array:
        return field.reshape(-1, *field.shape[len(shape) :])

    return shape, merge(batch.observation), merge(batch.action), tuple(map(merge, batch.reference))
