"""A torch module on one flat tensor, and Adam on it.

The module's parameters become views of one flat tensor, and their gradients views of another, so
that the flat vectors of `Policy` and `Critic` are the module's own storage: nothing is gathered
before a step of an optimiser or a solver, and a snapshot is one copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import array_api_compat.torch
import numpy as np
import torch
from torch import Tensor, nn

from redline.algorithms.core.contracts import Optimizer
from redline.algorithms.core.types import Array, Namespace


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
        # torch counts the changes of a tensor, but its fused optimisers leave theirs out.
        torch.autograd.graph.increment_version(self._parameters)

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


def views(flat: Tensor, like: Iterable[Tensor]) -> Iterator[Tensor]:
    """Consecutive pieces of a flat tensor in the shapes of `like`."""
    start = 0
    for tensor in like:
        yield flat[start : start + tensor.numel()].view(tensor.shape)
        start += tensor.numel()


class FlatModule:
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
        self.names = tuple(named)
        self.tensors = [*named.values(), *extra]
        kinds = sorted({f"{t.dtype} on {t.device}" for t in self.tensors})
        if len(kinds) != 1:
            found = ", ".join(kinds) or "none"
            raise ValueError(f"parameters must be of one precision and device, found {found}")
        self.lay_out()
        # Ratios, entropies and divergences are differences of logarithms: never below float32.
        self.dtype = torch.promote_types(self.parameters.dtype, torch.float32)

    def lay_out(self) -> None:
        """Make the flat tensors, and the parameters views of them.

        `pieces` are what stands in the flat tensors, in the order of `tensors`.
        """
        self.pieces = self.tensors
        self.parameters = torch.cat([t.detach().reshape(-1) for t in self.tensors])
        self.gradient_buffer = torch.zeros_like(self.parameters)
        for tensor, view in zip(self.tensors, views(self.parameters, self.tensors), strict=True):
            tensor.data = view

    @property
    def layers(self) -> dict[str, list[slice]]:
        """Where each layer lies in the flat vectors; weights and biases of one stand together."""
        extra = [f"extra_{i}" for i in range(len(self.tensors) - len(self.names))]
        found: dict[str, list[slice]] = {}
        start = 0
        for name, piece in zip([*self.names, *extra], self.pieces, strict=True):
            part = slice(start, start + piece.numel())
            found.setdefault(self.layer_of(name), []).append(part)
            start += piece.numel()
        return found

    def layer_of(self, name: str) -> str:
        """The layer that a parameter belongs to."""
        return name.rpartition(".")[0] or name

    def asarray(self, value: Array) -> Tensor:
        """A tensor on the module's device; floating numbers in its precision, at least float32."""
        if isinstance(value, np.ndarray) and not value.flags.writeable:
            value = value.copy()  # a tensor is always writable
        tensor = torch.as_tensor(value, device=self.parameters.device)
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def as_input(self, observation: Array) -> Tensor:
        """An observation in the precision of the parameters."""
        tensor = self.asarray(observation)
        return tensor.to(self.parameters.dtype) if tensor.is_floating_point() else tensor

    def collect_into(self, flat: Tensor) -> None:
        """Let derivatives of the parameters add up in `flat` [P], from 0 on."""
        flat.zero_()
        for tensor, view in zip(self.tensors, views(flat, self.tensors), strict=True):
            tensor.grad = view

    def ascend(self, objective: Tensor) -> None:
        """Fill the flat gradient with that of a scalar."""
        self.collect_into(self.gradient_buffer)
        objective.backward()  # type: ignore[no-untyped-call]

    def optimizer(self, eps: float) -> Optimizer:
        """Adam on the flat tensors."""
        return FlatAdam(self.parameters, self.gradient_buffer, eps)

    @property
    def version(self) -> int:
        """A number that changes whenever the parameters do."""
        return sum(tensor._version for tensor in (self.parameters, *self.tensors))

    def snapshot(self) -> Tensor:
        """A copy of the parameters."""
        return self.parameters.clone()

    def restore(self, snapshot: Array) -> None:
        """Put a snapshot back, bit for bit."""
        self.parameters.copy_(torch.as_tensor(snapshot))
