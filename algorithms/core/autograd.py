"""Policies and critics made of torch modules: derivatives by autograd, any device.

The module's parameters become views of one flat tensor, and their gradients views of another, so
that the flat vectors of `Policy` and `Critic` are the module's own storage: nothing is gathered
before a step of an optimiser or a solver, and a snapshot is one copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import array_api_compat.torch
import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from redline.algorithms.core.arrays import host
from redline.algorithms.core.distributions import Distribution
from redline.algorithms.core.types import (
    Array,
    Batch,
    Evaluation,
    KLTerm,
    Namespace,
    Optimizer,
    Params,
)

Call = Callable[..., Tensor]


class FlatAdam:
    """torch.optim.Adam on one flat tensor, ascending; its state is the numpy Adam's.

    Args:
        parameters: [P], stepped in place.
        gradient: [P], the gradient of what is to grow; read at every step.
        eps: Adam's epsilon.
    """

    def __init__(self, parameters: Tensor, gradient: Tensor, eps: float) -> None:
        self._parameters = parameters
        parameters.grad = gradient
        fused = parameters.device.type in ("cpu", "cuda")
        self._adam = torch.optim.Adam([parameters], eps=eps, maximize=True, fused=fused)

    def step(self, lr: float) -> None:
        """theta += lr * m_hat / (sqrt(v_hat) + eps)."""
        self._adam.param_groups[0]["lr"] = lr
        self._adam.step()

    def state_dict(self) -> dict[str, Any]:
        """Moments and step count."""
        state = self._adam.state.get(self._parameters)
        if not state:
            zeros = torch.zeros_like(self._parameters)
            return {"mean": zeros, "square": zeros.clone(), "steps": 0}
        return {
            # torch ascends along the negated gradient, so its mean has the other sign.
            "mean": -state["exp_avg"],
            "square": state["exp_avg_sq"].clone(),
            "steps": int(state["step"]),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        whole = self._adam.state_dict()
        like = self._parameters
        whole["state"] = {
            0: {
                "step": torch.tensor(float(state["steps"])),
                "exp_avg": -torch.as_tensor(state["mean"]).to(like, copy=True),
                "exp_avg_sq": torch.as_tensor(state["square"]).to(like, copy=True),
            }
        }
        self._adam.load_state_dict(whole)


def _views(flat: Tensor, like: Iterable[Tensor]) -> Iterator[Tensor]:
    """Consecutive pieces of a flat tensor in the shapes of `like`."""
    start = 0
    for tensor in like:
        yield flat[start : start + tensor.numel()].view(tensor.shape)
        start += tensor.numel()


class _FlatModule:
    """A module on flat storage. Parameters that need no gradient stay where they are.

    Args:
        module: On its device already, and not moved afterwards.
        extra: Further parameters, after the module's in the flat tensor.

    Raises:
        ValueError: Nothing to learn, or parameters of several precisions or devices.
    """

    xp: Namespace = array_api_compat.torch
    per_element = True

    def __init__(self, module: nn.Module, extra: Sequence[nn.Parameter] = ()) -> None:
        # Dropout would make the ratio to pi_old differ from 1 before the first step.
        self.module = module.eval()
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._names = tuple(named)
        self._tensors = [*named.values(), *extra]
        kinds = sorted({f"{t.dtype} on {t.device}" for t in self._tensors})
        if len(kinds) != 1:
            found = ", ".join(kinds) or "none"
            raise ValueError(f"parameters must be of one precision and device, found {found}")
        self.parameters = torch.cat([t.detach().reshape(-1) for t in self._tensors])
        self.gradient_buffer = torch.zeros_like(self.parameters)
        for tensor, view in zip(self._tensors, _views(self.parameters, self._tensors), strict=True):
            tensor.data = view
        # Ratios, entropies and divergences are differences of logarithms: never below float32.
        self._dtype = torch.promote_types(self.parameters.dtype, torch.float32)

    def asarray(self, value: Array) -> Tensor:
        """A tensor on the module's device; floating numbers in its precision, at least float32."""
        if isinstance(value, np.ndarray) and not value.flags.writeable:
            value = value.copy()  # a tensor is always writable
        tensor = torch.as_tensor(value, device=self.parameters.device)
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor

    def _input(self, observation: Array) -> Tensor:
        """An observation in the precision of the parameters."""
        tensor = self.asarray(observation)
        return tensor.to(self.parameters.dtype) if tensor.is_floating_point() else tensor

    def _ascend(self, objective: Tensor) -> None:
        """Fill the flat gradient with that of a scalar."""
        self.gradient_buffer.zero_()
        for tensor, view in zip(
            self._tensors, _views(self.gradient_buffer, self._tensors), strict=True
        ):
            tensor.grad = view
        objective.backward()  # type: ignore[no-untyped-call]

    def optimizer(self, eps: float) -> Optimizer:
        """Adam on the flat tensors."""
        return FlatAdam(self.parameters, self.gradient_buffer, eps)

    def snapshot(self) -> Tensor:
        """A copy of the parameters."""
        return self.parameters.clone()

    def restore(self, snapshot: Array) -> None:
        """Put a snapshot back, bit for bit."""
        self.parameters.copy_(torch.as_tensor(snapshot))


def _where(mask: Tensor, value: Tensor) -> Tensor:
    # where, never a product: an infinity times a zero mask would be nan.
    return torch.where(mask, value, torch.zeros_like(value))


class AutogradPolicy(_FlatModule):
    """pi(a|s) from a torch module whose outputs are those of a distribution of the core.

    See `redline.algorithms.core.types.Policy`. A policy whose observation is a whole row sets
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
        return call(self._input(batch.observation))

    @property
    def _free(self) -> list[nn.Parameter]:
        """Parameters beside the module's: the log standard deviation, or nothing."""
        return self._tensors[len(self._names) :]

    def _raw(self, batch: Batch, values: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
        """What the distribution is made of, at `values` in place of the parameters."""
        if values is None:
            call: Call = self.module
            values = self._tensors
        else:
            named = dict(zip(self._names, values, strict=False))

            def call(*args: Any, **kwargs: Any) -> Tensor:
                output: Tensor = functional_call(self.module, named, args, kwargs)
                return output

        raw = (self.network(batch, call), *values[len(self._names) :])
        return tuple(part.to(torch.promote_types(part.dtype, torch.float32)) for part in raw)

    def _log_prob(self, params: Params, batch: Batch) -> Tensor:
        action, mask = batch.action, batch.mask
        # Padding may hold anything, an index out of range included.
        action = _where(mask.reshape(mask.shape + (1,) * (action.ndim - mask.ndim)), action)
        log_prob: Tensor = self.distribution.log_prob(self.xp, params, action)
        return log_prob

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> Evaluation:
        """See `redline.algorithms.core.types.Policy`."""
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
        """See `redline.algorithms.core.types.Policy`."""
        dist, mask = self.distribution, batch.mask
        with torch.enable_grad():
            params = dist.params(self.xp, self._raw(batch))
            log_prob = self._log_prob(params, batch)
            # The weights are numbers: what they depend on is not differentiated.
            objective = _where(mask, weigh(log_prob.detach()) * log_prob).sum()
            if entropy is not None:
                objective = objective + _where(mask, entropy * dist.entropy(self.xp, params)).sum()
            if kl is not None:
                divergence = dist.kl(self.xp, batch.reference, params)
                coefficient = kl.coefficient(divergence.detach())
                objective = objective - _where(mask, coefficient * divergence).sum()
            self._ascend(objective)

    @torch.no_grad()
    def kl(self, batch: Batch, evaluation: Evaluation | None = None) -> Array:
        """See `redline.algorithms.core.types.Policy`."""
        new = (evaluation or self.evaluate(batch)).params
        return self.distribution.kl(self.xp, batch.reference, new)

    def fisher_product(self, batch: Batch) -> Callable[[Array], Array]:
        """v -> J' M J v / N over the valid elements: M the Fisher matrix of the distribution.

        J v is a forward derivative and J' a backward one, so the module needs both (fused
        attention kernels lack the former). The product is that of the parameters at this call.
        """
        dist, mask = self.distribution, batch.mask[..., None]
        with torch.enable_grad():
            raw = self._raw(batch)
        params = dist.params(self.xp, tuple(part.detach() for part in raw))
        point = tuple(tensor.detach() for tensor in self._tensors)
        count = batch.mask.sum().clamp(min=1)

        def product(v: Tensor) -> Tensor:
            direction = tuple(_views(v, self._tensors))
            with torch.no_grad():
                tangent = jvp(lambda *at: self._raw(batch, at), point, direction)[1]
                image = dist.metric(self.xp, params, tangent)
                # A free log_std is shared by all elements: its mean is itself.
                image = (_where(mask, image[0]) / count, *image[1:])
            parts = torch.autograd.grad(
                raw, self._tensors, image, retain_graph=True, materialize_grads=True
            )
            return torch.cat([part.reshape(-1) for part in parts])

        return product


class AutogradCritic(_FlatModule):
    """V(s) from a torch module; see `redline.algorithms.core.types.Critic`.

    A critic whose observation is a whole row sets `per_element` to False and overrides `network`.

    Args:
        module: Observations [..., D] -> [..., 1].

    Raises:
        ValueError: Nothing to learn, or parameters of several precisions or devices.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)

    def network(self, observation: Tensor, mask: Tensor) -> Tensor:
        """V shaped like `mask`."""
        value: Tensor = self.module(self._input(observation))[..., 0]
        return value

    @torch.no_grad()
    def values(self, observation: Array, mask: Array) -> Array:
        """See `redline.algorithms.core.types.Critic`."""
        return host(self.network(self.asarray(observation), self.asarray(mask)))

    def gradient(self, observation: Array, returns: Array, mask: Array) -> float:
        """See `redline.algorithms.core.types.Critic`."""
        mask = self.asarray(mask)
        with torch.enable_grad():
            value = self.network(self.asarray(observation), mask).to(self._dtype)
            error = _where(mask, self.asarray(returns) - value)
            mean = (error * error).sum() / mask.sum().clamp(min=1)
            self._ascend(-mean)
        return float(mean.detach())
