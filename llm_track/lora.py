"""Low-rank adapters: a few parameters beside a model that stays as it is (arXiv:2106.09685)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import torch

from redline.llm_track.pretrained import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# alpha / rank: what an adapter's output is multiplied by.
_SCALE = 2


def add_adapters(model: PreTrainedModel, rank: int, seed: int) -> str:
    """Put an adapter beside every linear layer but the output's; nothing else learns from then on.

    W x becomes W x + 2 B A x with A [rank, in], normal, and B [out, rank], zero: the model is what
    it was until B learns.

    Args:
        model: A transformers causal LM, changed in place.
        rank: Of the adapters.
        seed: Of A.

    Returns:
        One sentence: how many parameters learn.

    Raises:
        ModelError: peft is not installed, the rank is none, or the model has no such layers.
    """
    if find_spec("peft") is None:
        raise ModelError('lora needs peft: pip install "redline-rl[lora]"')
    if rank < 1:
        raise ModelError(f"lora must be a rank of at least 1, got {rank}")
    from peft import LoraConfig, TaskType, inject_adapter_in_model

    config = LoraConfig(
        r=rank,
        lora_alpha=_SCALE * rank,
        target_modules="all-linear",
        init_lora_weights="gaussian",
        task_type=TaskType.CAUSAL_LM,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            inject_adapter_in_model(config, cast(Any, model))
        except ValueError as error:
            raise ModelError(f"lora does not fit {type(model).__name__}: {error}") from error
    learns = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learns:  # peft makes them float32 whatever the model is
        parameter.data = parameter.data.to(model.dtype)
    count = sum(parameter.numel() for parameter in learns)
    total = sum(parameter.numel() for parameter in model.parameters())
    return f"{count:,} parameters of adapters learn, {total - count:,} of the model are frozen"


def merge_adapters(model: Any) -> None:
    """Add the adapters to the layers beside which they stand, and take them away."""
    from peft.tuners.lora import LoraLayer

    adapted = [(name, part) for name, part in model.named_modules() if isinstance(part, LoraLayer)]
    for name, part in adapted:
        layer: Any = part
        layer.merge()
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, layer.get_base_layer())
    model.requires_grad_(True)
