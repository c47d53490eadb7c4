"""A causal language model seen as a trunk that gives hidden states, and a head that follows it."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from redline.algorithms.core.flat import FlatModule
from redline.algorithms.core.types import Array
from redline.llm_track.completions import Completions, Part
from redline.llm_track.head import Head, default_chunk
from redline.llm_track.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Activations of one micro-batch where its rows are not given, and their numbers per token, layer
# and unit of width (measured on Llama: 20 to 25).
_ACTIVATION_BYTES = 2**30
_ACTIVATIONS = 25


class _Known(NamedTuple):
    """States [B, T, D] of the elements of `mask`, for parameters of this version."""

    version: int
    observation: Tensor
    mask: Tensor
    states: Tensor


class CausalNetwork(FlatModule):
    """The model of a policy: micro-batches of rows through the trunk, chunks of tokens beyond it.

    Args:
        model: A transformers causal LM on its device, in its precision. Dropout is off from here.
        temperature: Divides the logits.
        rows: Rows of a micro-batch; None: as many as make 1 GB of activations.
        chunk: Tokens whose log-probabilities over the vocabulary are held at once; None: 32 MB.

    Raises:
        ValueError: The head is not linear, parameters are of several precisions or devices, or
            nothing is trainable.
    """

    per_element = False
    # The processes that share its rows, in a run that several of them train.
    ranks: Ranks = ALONE
    _head_learns = True

    def __init__(
        self, model: PreTrainedModel, temperature: float, rows: int | None, chunk: int | None
    ) -> None:
        self.model: Any = model
        self.output = _linear_head(model)
        super().__init__(model)
        self.trunk: Any = model.base_model
        self.temperature, self.rows = temperature, rows
        self.chunk = chunk or default_chunk(self.output.out_features)
        self._known: _Known | None = None
        slot = {id(tensor): i for i, tensor in enumerate(self.tensors)}
        self.head_slots = (slot.get(id(self.output.weight), -1), slot.get(id(self.output.bias), -1))
        self.trunk_slots = {
            name: slot[id(parameter)]
            for name, parameter in self.trunk.named_parameters()
            if parameter.requires_grad
        }

    def layer_of(self, name: str) -> str:
        """One of "embedding", "block_0" and so on, "norm" (what stands between) and "head"."""
        if found := re.search(r"\.(?:layers|h|blocks)\.(\d+)\.", f".{name}"):
            return f"block_{found[1]}"
        owner: Any = self.model.get_submodule(name.rpartition(".")[0])
        if isinstance(owner, nn.Embedding):
            return "embedding"
        return "head" if owner is self.output else "norm"

    @property
    def tied(self) -> slice | None:
        """Where a matrix that is embedding and output layer lies in the flat vectors, or None."""
        slot = self.head_slots[0]
        if slot not in self.trunk_slots.values():
            return None
        start = sum(piece.numel() for piece in self.pieces[:slot])
        return slice(start, start + self.pieces[slot].numel())

    @contextmanager
    def trunk_alone(self) -> Iterator[None]:
        """Within it, derivatives reach a tied matrix through the embedding only."""
        self._head_learns = False
        try:
            yield
        finally:
            self._head_learns = True

    @property
    def size(self) -> int:
        """Parameters, frozen ones included."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    def head_tensors(self) -> tuple[Tensor, Tensor | None]:
        """Weight [V, D] and bias [V] of the output layer, detached."""
        weight, bias = self.output.weight, self.output.bias
        return weight.detach(), None if bias is None else bias.detach()

    def head(self) -> Head:
        """The output layer, detached, in float32 at least."""
        return Head(*self.head_tensors(), self.temperature).to(self.dtype)

    @contextmanager
    def learning_head(self, block: Container[int] | None = None) -> Iterator[Head]:
        """The output layer, whose derivatives add up in its parameters' `grad`.

        They do so in float32 at least, and arrive when the context ends where the parameters are
        in less.

        Args:
            block: Positions in `tensors` of the parameters that are meant; None: all.
        """
        head = self.head()
        narrow = []
        for slot, leaf in zip(self.head_slots, (head.weight, head.bias), strict=True):
            meant = self._head_learns and (block is None or slot in block)
            if leaf is None or slot < 0 or not meant:
                continue
            gradient = self.tensors[slot].grad
            assert gradient is not None, "collect_into says where derivatives go"
            leaf.requires_grad_(True)
            if leaf.dtype == gradient.dtype:
                leaf.grad = gradient
            else:
                leaf.grad = torch.zeros_like(leaf)
                narrow.append((gradient, leaf.grad))
        yield head
        for gradient, wide in narrow:
            gradient += wide

    def pool(self, flat: Tensor) -> None:
        """Let `flat`, which derivatives of this process's rows were collected into, be of all."""
        self.ranks.add(flat)

    def parts(self, observation: Tensor, mask: Tensor) -> Iterator[Part]:
        """The elements of `mask` in micro-batches of rows."""
        completions = Completions(observation, mask)
        return completions.parts(self._most_tokens if self.rows is None else None, self.rows)

    @property
    def _most_tokens(self) -> int:
        """Of a micro-batch, padding included, where its rows are not given."""
        config: Any = self.model.config
        per_token = _ACTIVATIONS * config.num_hidden_layers * config.hidden_size
        return int(_ACTIVATION_BYTES // (per_token * self.parameters.itemsize))

    def fit_together(self, parts: Sequence[Part], copies: int = 1) -> bool:
        """`copies` of all parts are no more than one micro-batch may be: graphs can be kept."""
        if self.rows is not None:
            return copies * sum(len(part.tokens) for part in parts) <= self.rows
        tokens = copies * sum(part.tokens.numel() for part in parts)
        return copies == len(parts) == 1 or tokens <= self._most_tokens

    def states(self, part: Part, values: dict[str, Tensor] | None = None) -> Tensor:
        """The last layer's states [N, D] that a part's elements are drawn from.

        Args:
            part: N elements.
            values: Parameters of the trunk in place of its own, by name.
        """
        inputs = {"input_ids": part.tokens, "use_cache": False}
        output = functional_call(self.trunk, values, (), inputs) if values else self.trunk(**inputs)
        hidden: Tensor = output.last_hidden_state[part.states]
        return hidden.to(self.dtype)

    def remember(self, observation: Array, mask: Array, states: Tensor) -> None:
        """Take the states [B, T, D] of rows as they are until the parameters move.

        The rollout at hand need not be read again to be scored, then. In less than float32, where
        a state depends on how many rows were read at once, nothing is kept.
        """
        if states.dtype == self.dtype:
            rows = self.asarray(observation), self.asarray(mask)
            self._known = _Known(self.version, *rows, states)

    def known_rows(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Observations, masks and states of rows read since the parameters moved, if any.

        Nothing is known where several processes share the rows.
        """
        if self._known is not None and self._known.version != self.version:
            self._known = None
        return None if self._known is None else self._known[1:]

    def _remembered(self, observation: Tensor, mask: Tensor) -> Tensor | None:
        rows = self.known_rows()
        if rows is None:
            return None
        read, of, states = rows
        same = torch.equal(of, mask) and torch.equal(read, observation)
        return states if same else None

    def hidden(self, observation: Array, mask: Array) -> Tensor:
        """The last layer's states [B, T, D] that each element is drawn from; 0 where masked."""
        found = self.own_hidden(observation, self.ranks.own(self.asarray(mask)))
        self.ranks.add(found)
        return found

    @torch.no_grad()
    def own_hidden(self, observation: Array, mask: Array) -> Tensor:
        """The same of exactly the elements of `mask`, by this process alone."""
        observation, mask = self.asarray(observation), self.asarray(mask)
        known = self._remembered(observation, mask)
        if known is not None:
            return known
        parts = list(self.parts(observation, mask))
        found = self.scattered(parts, map(self.states, parts), mask)
        # A whole batch is asked for again, by a line search or the look after it; a part is not.
        if self.ranks is ALONE and (self._known is None or len(mask) >= len(self._known.mask)):
            self._known = _Known(self.version, observation, mask, found)
        return found

    @torch.no_grad()
    def scattered(self, parts: Sequence[Part], states: Iterable[Tensor], mask: Tensor) -> Tensor:
        """The states of parts at their places in the batch, [B, T, D], without their graphs."""
        shape = (*mask.shape, self.output.in_features)
        found = torch.zeros(shape, dtype=self.dtype, device=mask.device)
        for part, own in zip(parts, states, strict=True):
            found[part.elements] = own.detach()
        return found


@torch.no_grad()
def _linear_head(model: PreTrainedModel) -> nn.Linear:
    """The layer that turns the last states into logits.

    Raises:
        ValueError: There is more to the logits than a linear layer (caps, scales).
    """
    whole: Any = model
    whole.eval()  # dropout would make two passes differ
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    inputs = {"input_ids": torch.tensor([[0, 1]], device=model.device), "use_cache": False}
    if isinstance(head, nn.Linear):
        logits = model(**inputs).logits
        if torch.allclose(head(model.base_model(**inputs).last_hidden_state), logits, rtol=1e-3):
            return head
    raise ValueError(
        f"{type(model).__name__} is not supported: its logits are not a linear layer on its last "
        "hidden states"
    )
