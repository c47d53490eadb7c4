"""Parameters that stay as they are: embeddings, the first layers, or any by name."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from torch import nn

from redline.llm_track.pretrained import ModelError
from redline.llm_track.settings import Freeze

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def freeze(model: PreTrainedModel, what: Freeze) -> str:
    """Freeze parts of a model, before a policy is made of it; it then holds no gradients for them.

    Where the embeddings are tied to the output layer they are one matrix, so that freezing the
    embeddings freezes the output layer too.

    Args:
        model: A transformers causal LM.
        what: Its parts.

    Returns:
        One sentence: how many parameters are frozen, and whether the output layer is among them.

    Raises:
        ModelError: There are not so many layers, a pattern fits no name, or nothing is left to
            learn.
    """
    frozen = _named(model, what.names) + _layers(model, what.layers)
    if what.embeddings:
        tables = (part for part in model.base_model.modules() if isinstance(part, nn.Embedding))
        frozen += [parameter for table in tables for parameter in table.parameters()]
    for parameter in frozen:
        parameter.requires_grad_(False)
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    total, learns = sum(size for size, _ in sizes), sum(size for size, free in sizes if free)
    if not learns:
        raise ModelError("every parameter is frozen: nothing is left to learn")
    output = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    held = output is not None and not output.weight.requires_grad
    tied = held and output.weight is model.get_input_embeddings().weight
    return (
        f"{total - learns:,} of {total:,} parameters are frozen"
        + (", the output layer among them" if held else "")
        + (", for it is tied to the embeddings" if tied else "")
    )


def _named(model: nn.Module, patterns: Sequence[str]) -> list[nn.Parameter]:
    found = []
    for pattern in patterns:
        fits = [part for name, part in model.named_parameters() if fnmatchcase(name, pattern)]
        if not fits:
            raise ModelError(
                f"freeze.names must fit names of parameters, such as "
                f"{next(name for name, _ in model.named_parameters())}, got {pattern!r}"
            )
        found += fits
    return found


def _layers(model: PreTrainedModel, count: int) -> list[nn.Parameter]:
    depth = model.config.num_hidden_layers
    if not 0 <= count <= depth:
        raise ModelError(f"freeze.layers must be from 0 to {depth} on this model, got {count}")
    stacks = (part for part in model.base_model.children() if isinstance(part, nn.ModuleList))
    layers = next((stack for stack in stacks if len(stack) == depth), nn.ModuleList())
    return [parameter for layer in layers[:count] for parameter in layer.parameters()]
