"""A language model whose parameters several processes hold together, each its part (FSDP2).

`fully_shard` splits every parameter by rows. A layer's parameters are gathered when a pass comes to
it and let go after it; a backward pass adds up their gradients and leaves each process its part.
All processes must therefore run the trunk equally often: one whose rows need fewer passes than
another's makes up for it with passes of nothing.

The flat vectors of the policy are a process's own part. What is kept for long, a snapshot or a
checkpoint, is whole, in the order of a policy in one process, which can therefore load it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard
from transformers import GradientCheckpointingLayer

from redline.algorithms.core.contracts import Optimizer
from redline.algorithms.core.flat import FlatAdam, views
from redline.algorithms.core.types import Array, Batch
from redline.llm_track.completions import Part
from redline.llm_track.head import Head, gradient_of
from redline.llm_track.policy import CausalLMPolicy
from redline.llm_track.ranks import Ranks, RanksError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class ShardedLMPolicy(CausalLMPolicy):
    """`CausalLMPolicy` on its process's part of the parameters.

    The part is held twice, in the flat vector that steps move and where `fully_shard` gathers from;
    a gathered output layer and snapshots are whole, the latter in the memory of the CPU.

    Args:
        model: The same in all processes, on this one's device; its parameters are spread.
        temperature: As `CausalLMPolicy`.
        ranks: The processes.
        settings: As `CausalLMPolicy`.

    Raises:
        ValueError: As `CausalLMPolicy`.
    """

    parameters: Tensor

    def __init__(
        self, model: PreTrainedModel, temperature: float = 1.0, *, ranks: Ranks, **settings: Any
    ) -> None:
        self.ranks = ranks
        super().__init__(model, temperature, **settings)

    def lay_out(self) -> None:
        """See `FlatModule`."""
        device = self.tensors[0].device.type
        self._mesh = init_device_mesh(device, (self.ranks.count,))
        spread(self.module, self._mesh)
        named: dict[str, Any] = dict(self.module.named_parameters())
        self.tensors = [named[name] for name in self.names]
        with torch.no_grad():
            self.pieces = [named[name].to_local() for name in self.names]
        self.parameters = torch.cat([piece.reshape(-1) for piece in self.pieces])
        self.gradient_buffer = torch.zeros_like(self.parameters)
        self._written = self.parameters._version
        model: Any = self.module
        # Before the hook that gathers the parameters outside of the layers.
        model.base_model.register_forward_pre_hook(lambda *_: self._write(), prepend=True)

    @torch.no_grad()
    def _write(self) -> None:
        """Where the flat vector has moved, let the model have it."""
        if self._written != self.parameters._version:
            for piece, view in zip(self.pieces, self._views(self.parameters), strict=True):
                piece.copy_(view)
            self._written = self.parameters._version

    def _views(self, flat: Tensor) -> Iterator[Tensor]:
        return views(flat, self.pieces)

    @property
    def version(self) -> int:
        """A number that changes whenever the parameters do."""
        return int(self.parameters._version)

    def pooled(self, values: Array) -> Array:
        """Sum over the processes."""
        return self.ranks.total(values)

    @torch.no_grad()
    def whole(self, flat: Tensor) -> Tensor:
        """The vector [P] of all parameters, on the CPU, whose part is `flat`; all must call it."""
        found = [
            DTensor.from_local(
                view.contiguous(),
                self._mesh,
                [Shard(0)],
                run_check=False,
                shape=tensor.shape,
                stride=tensor.stride(),
            )
            .full_tensor()
            .reshape(-1)
            .cpu()
            for tensor, view in zip(self.tensors, self._views(flat), strict=True)
        ]
        return torch.cat(found)

    def part(self, whole: Array) -> Tensor:
        """Inverse of `whole`, for this process."""
        kept = [
            self._rows(full).reshape(-1) for full in views(torch.as_tensor(whole), self.tensors)
        ]
        return torch.cat(kept).to(self.parameters)

    def _rows(self, full: Tensor) -> Tensor:
        """This process's rows of a parameter."""
        each = -(-len(full) // self.ranks.count)
        return full[self.ranks.rank * each : (self.ranks.rank + 1) * each]

    def snapshot(self) -> Tensor:
        """A copy of all parameters; all processes must call it."""
        return self.whole(self.parameters)

    def restore(self, snapshot: Array) -> None:
        """Put a snapshot back, bit for bit."""
        self.parameters.copy_(self.part(snapshot))

    def optimizer(self, eps: float) -> Optimizer:
        """Adam on the process's part."""
        return ShardAdam(self, eps)

    def head_tensors(self) -> tuple[Tensor, Tensor | None]:
        """See `CausalNetwork`."""
        self._write()
        weight, bias = self.output.weight, self.output.bias
        return _gathered(weight), None if bias is None else _gathered(bias)

    @contextmanager
    def learning_head(self, block: Container[int] | None = None) -> Iterator[Head]:
        """See `CausalNetwork`."""
        head = self.head()
        leaves = [
            (slot, leaf)
            for slot, leaf in zip(self.head_slots, (head.weight, head.bias), strict=True)
            if leaf is not None and slot >= 0 and self._head_learns
        ]
        for _, leaf in leaves:
            leaf.requires_grad_(True).grad = torch.zeros_like(leaf)
        yield head
        parts = list(self._views(self.gradient_buffer))
        for slot, leaf in leaves:
            self.ranks.add(gradient_of(leaf))
            parts[slot] += self._rows(gradient_of(leaf))

    def collect_into(self, flat: Tensor) -> None:
        """Let derivatives add up in the model, from 0 on; `pool` brings them into `flat`."""
        flat.zero_()
        for tensor in self.tensors:
            tensor.grad = None

    def pool(self, flat: Tensor) -> None:
        """See `CausalNetwork`; what a backward pass left is summed already."""
        for tensor, view in zip(self.tensors, self._views(flat), strict=True):
            if isinstance(tensor.grad, DTensor):
                view += tensor.grad.to_local()
            tensor.grad = None

    def parts(self, observation: Tensor, mask: Tensor) -> Iterator[Part]:
        """See `CausalNetwork`; as many in every process, the missing ones of no element."""
        own = list(super().parts(observation, mask))
        nothing = mask.new_zeros(0, dtype=torch.long)
        token = mask.new_zeros((1, 1), dtype=torch.long)
        empty = Part(token, (nothing, nothing), (nothing, nothing))
        yield from own + [empty] * (self.ranks.most(len(own)) - len(own))

    def fit_together(self, parts: Sequence[Part], copies: int = 1) -> bool:
        """See `CausalNetwork`; graphs of several passes would hold what each gathered."""
        return len(parts) == copies == 1

    def copy(self) -> Self:
        """Refused.

        Raises:
            RanksError: Always.
        """
        raise RanksError("a policy whose parameters are spread over processes cannot be copied")

    def fisher_product(self, batch: Batch) -> Callable[[Array], Array]:
        """Refused.

        Raises:
            RanksError: Always.
        """
        raise RanksError(
            "Fisher products take forward derivatives, which parameters that are spread over "
            "processes do not have"
        )


class ShardAdam(FlatAdam):
    """Adam on a process's part; its state is that of all parameters. All must call for it."""

    def __init__(self, policy: ShardedLMPolicy, eps: float) -> None:
        super().__init__(policy.parameters, policy.gradient_buffer, eps)
        self._policy = policy

    def state_dict(self) -> dict[str, Any]:
        """Moments and step count."""
        state = super().state_dict()
        return state | {name: self._policy.whole(state[name]) for name in _MOMENTS}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        super().load_state_dict(state | {name: self._policy.part(state[name]) for name in _MOMENTS})


_MOMENTS = ("mean", "square")


def spread(module: nn.Module, mesh: DeviceMesh) -> None:
    """Split the parameters of a causal LM over the processes of a mesh: layers, rest and head.

    Args:
        module: A transformers causal LM, changed in place.
        mesh: Of one dimension.
    """
    model: Any = module
    trunk, output = model.base_model, model.get_output_embeddings()
    table = trunk.get_input_embeddings()
    tied = output.weight is table.weight
    layers = [part for part in trunk.modules() if isinstance(part, GradientCheckpointingLayer)]
    # The head is never run: its weights are gathered by name, whether they are the table or not.
    for part in (*layers, trunk, *(() if tied else (output,))):
        # A step between two passes must not meet what the first one gathered.
        fully_shard(part, mesh=mesh, reshard_after_forward=True)
        assert isinstance(part, FSDPModule)
        # Coefficients hold the denominators of all rows, so that derivatives are summed; gloo can
        # do so in one way alone.
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
    if tied:
        output.weight = table.weight
    # It warns of changing that view in place, which nothing here does.
    warnings.filterwarnings("ignore", message=".*returned a view tensor")


def _gathered(parameter: Any) -> Tensor:
    """All of a parameter, detached."""
    full: Tensor = parameter.detach().full_tensor()
    return full
