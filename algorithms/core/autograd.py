"""Policies and critics made of torch modules: derivatives by autograd, any device."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from redline.algorithms.core.arrays import host
from redline.algorithms.core.distributions import Distribution
from redline.algorithms.core.flat import FlatModule, views
from redline.algorithms.core.types import Array, Batch, Evaluation, KLTerm, Params

Call = Callable[..., Tensor]


def _where(mask: Tensor, value: Tensor) -> Tensor:
    # where, never a product: an infinity times a zero mask would be nan.
    return torch.where(mask, value, torch.zeros_like(value))


class AutogradPolicy(FlatModule):
    """pi(a|s) from a torch module whose outputs are those of a distribution of the core.

    See `redline.algorithms.core.contracts.Policy`. A policy whose observation is a whole row sets
    `per_element` to False and overrides `network`.

    Args:
        module: Observations [..., D] -> outputs [..., distribution.width] (logits, or means).
        distribution: Action distribution.
        log_std: Initial value of the free log standard deviation, where the distribution has one.

    Raises:
        ValueError: Nothing to learn, or parameters of several precisions or devices.
    """

    def __init__(self, module: nn.Module, distribution: Distribution, log_std: float = 0.0) -> None:
        self.distribution = distribution
        extra = []
        if distribution.has_log_std:
            like = next(module.parameters())
            extra = [nn.Parameter(like.new_full((distribution.width,), log_std))]
        super().__init__(module, extra)

    def network(self, batch: Batch, call: Call) -> Tensor:
        """Outputs per element, [B, T, width] or [N, width].

        Args:
            batch: Elements.
            call: The module; while differentiating forwards, the module with other parameters.
        """
        return call(self.as_input(batch.observation))

    def outputs(self, observation: Array) -> Tensor:
        """Outputs for acting, one entry per row of `observation`: [B, width]."""
        output: Tensor = self.module(self.as_input(observation))
        return output

    @torch.no_grad()
    def _acting(self, observation: Array) -> Params:
        return tuple(host(part) for part in (self.outputs(observation), *self.free))

    def act(self, observation: Array, rng: np.random.Generator | None) -> Array:
        """See `redline.algorithms.core.contracts.Policy`."""
        raw = self._acting(observation)
        return self.distribution.mode(raw) if rng is None else self.distribution.sample(raw, rng)

    def predict(self, observation: Array) -> Params:
        """See `redline.algorithms.core.contracts.Policy`."""
        return self.distribution.params(np, self._acting(observation))

    def copy(self) -> Self:
        """See `redline.algorithms.core.contracts.Policy`."""
        twin = type(self)(copy.deepcopy(self.module), self.distribution)
        twin.restore(self.parameters)
        return twin

    @property
    def free(self) -> list[nn.Parameter]:
        """Parameters beside the module's: the log standard deviation, or nothing."""
        return self.tensors[len(self.names) :]

    def _raw(self, batch: Batch, values: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
        """What the distribution is made of, at `values` in place of the parameters."""
        if values is None:
            call: Call = self.module
            values = self.tensors
        else:
            named = dict(zip(self.names, values, strict=False))

            def call(*args: Any, **kwargs: Any) -> Tensor:
                output: Tensor = functional_call(self.module, named, args, kwargs)
                return output

        raw = (self.network(batch, call), *values[len(self.names) :])
        return tuple(part.to(torch.promote_types(part.dtype, torch.float32)) for part in raw)

    def _log_prob(self, params: Params, batch: Batch) -> Tensor:
        action, mask = batch.action, batch.mask
        # Padding may hold anything, an index out of range included.
        action = _where(mask.reshape(mask.shape + (1,) * (action.ndim - mask.ndim)), action)
        log_prob: Tensor = self.distribution.log_prob(self.xp, params, action)
        return log_prob

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> Evaluation:
        """See `redline.algorithms.core.contracts.Policy`."""
        params = self.distribution.params(self.xp, self._raw(batch))
        log_prob = self._log_prob(params, batch)
        # The free log_std is copied: parameters of pi_old must not follow the policy.
        per_element = tuple(
            part
            if part.shape[:-1] == log_prob.shape
            else part.clone().expand(*log_prob.shape, part.shape[-1])
            for part in params
        )
        return Evaluation(log_prob, self.distribution.entropy(self.xp, params), per_element)

    def gradient(
        self,
        batch: Batch,
        weigh: Callable[[Array], Array],
        entropy: Array | None = None,
        kl: KLTerm | None = None,
    ) -> None:
        """See `redline.algorithms.core.contracts.Policy`."""
        dist, mask = self.distribution, batch.mask
        with torch.enable_grad():
            params = dist.params(self.xp, self._raw(batch))
            log_prob = self._log_prob(params, batch)
            # The weights are numbers: what they depend on is not differentiated.
            objective = _where(mask, weigh(log_prob.detach()) * log_prob).sum()
            if entropy is not None:
                objective = objective + _where(mask, entropy * dist.entropy(self.xp, params)).sum()
            if kl is not None:
                pair = (params, batch.reference) if kl.reverse else (batch.reference, params)
                divergence = dist.kl(self.xp, *pair)
                coefficient = kl.coefficient(divergence.detach())
                objective = objective - _where(mask, coefficient * divergence).sum()
            self.ascend(objective)

    @torch.no_grad()
    def kl(
        self, batch: Batch, evaluation: Evaluation | None = None, reverse: bool = False
    ) -> Array:
        """See `redline.algorithms.core.contracts.Policy`."""
        new = (evaluation or self.evaluate(batch)).params
        pair = (new, batch.reference) if reverse else (batch.reference, new)
        return self.distribution.kl(self.xp, *pair)

    def fisher_product(self, batch: Batch) -> Callable[[Array], Array]:
        """v -> J' M J v / N over the valid elements: M the Fisher matrix of the distribution.

        J v is a forward derivative and J' a backward one, so the module needs both (fused
        attention kernels lack the former). The product is that of the parameters at this call.
        """
        dist, mask = self.distribution, batch.mask[..., None]
        with torch.enable_grad():
            raw = self._raw(batch)
        params = dist.params(self.xp, tuple(part.detach() for part in raw))
        point = tuple(tensor.detach() for tensor in self.tensors)
        count = batch.mask.sum().clamp(min=1)

        def product(v: Tensor) -> Tensor:
            direction = tuple(views(v, self.tensors))
            with torch.no_grad():
                tangent = jvp(lambda *at: self._raw(batch, at), point, direction)[1]
                image = dist.metric(self.xp, params, tangent)
                # A free log_std is shared by all elements: its mean is itself.
                image = (_where(mask, image[0]) / count, *image[1:])
            parts = torch.autograd.grad(
                raw, self.tensors, image, retain_graph=True, materialize_grads=True
            )
            return torch.cat([part.reshape(-1) for part in parts])

        return product


class AutogradCritic(FlatModule):
    """V(s) from a torch module; see `redline.algorithms.core.contracts.Critic`.

    A critic whose observation is a whole row sets `per_element` to False and overrides `network`.

    Args:
        module: Observations [..., D] -> [..., 1].

    Raises:
        ValueError: Nothing to learn, or parameters of several precisions or devices.
    """

    def network(self, observation: Tensor, mask: Tensor) -> Tensor:
        """V shaped like `mask`."""
        value: Tensor = self.module(self.as_input(observation))[..., 0]
        return value

    @torch.no_grad()
    def values(self, observation: Array, mask: Array) -> Array:
        """See `redline.algorithms.core.contracts.Critic`."""
        return host(self.network(self.asarray(observation), self.asarray(mask)))

    def gradient(self, observation: Array, returns: Array, mask: Array) -> float:
        """See `redline.algorithms.core.contracts.Critic`."""
        mask = self.asarray(mask)
        with torch.enable_grad():
            value = self.network(self.asarray(observation), mask).to(self.dtype)
            error = _where(mask, self.asarray(returns) - value)
            mean = (error * error).sum() / mask.sum().clamp(min=1)
            self.ascend(-mean)
        return float(mean.detach())
