"""Processes that train one model together: each runs the model on its rows, all hold the results.

The launcher (`accelerate launch`, `torchrun`) starts the same command several times and says in the
environment which process is which. All of them draw the same prompts and keep the same batch;
sampling, scoring and derivatives are split by rows, and their results are added up, so that
advantages, denominators, clips, early stopping and metrics are those of one process, computed by
each. Parameters stay equal because every process takes the same step.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from redline.algorithms.core.types import Array


class RanksError(ValueError):
    """Processes that cannot train together, in one sentence."""


@dataclass(frozen=True)
class Ranks:
    """One process among several.

    Attributes:
        rank: Its number, from 0 on.
        count: How many there are.
    """

    rank: int = 0
    count: int = 1

    def rows(self, count: int) -> Array:
        """Numbers of the rows, of so many, that are this process's."""
        return np.arange(self.rank, count, self.count)

    def own(self, mask: Tensor) -> Tensor:
        """The mask [B, ...] with the rows of other processes False."""
        if self.count == 1:
            return mask
        mine = torch.arange(len(mask), device=mask.device) % self.count == self.rank
        return mask & mine.view(-1, *[1] * (mask.ndim - 1))

    def add(self, *tensors: Tensor) -> None:
        """Put into each tensor the sum over all processes, which is the same bits in all."""
        if self.count > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)

    def total(self, array: Array) -> Array:
        """The sum of numpy arrays over all processes; of bools, whether any is True."""
        if self.count == 1:
            return array
        on_gpu = dist.get_backend() == "nccl"
        tensor = torch.as_tensor(array.astype(np.int64) if array.dtype == bool else array)
        tensor = tensor.cuda() if on_gpu else tensor.clone()
        self.add(tensor)
        return tensor.cpu().numpy().astype(array.dtype)


ALONE = Ranks()


def join(device: str) -> Ranks:
    """Meet the other processes that the launcher started; `ALONE` where there are none.

    Args:
        device: Of the model; "cuda" becomes each process's own.

    Raises:
        RanksError: Parameters are to be spread over the processes, which they cannot.
    """
    count, rank = (int(os.environ.get(name, default)) for name, default in _WHO)
    if count == 1:
        return ALONE
    for name, what in _SHARDED.items():
        if os.environ.get(name, "false").lower() in ("1", "true"):
            raise RanksError(
                f"{what} spreads the parameters over processes, and every process here needs them "
                "whole: choose data parallelism (distributed_type: MULTI_GPU or MULTI_CPU)"
            )
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    if not dist.is_initialized():
        dist.init_process_group("nccl" if on_gpu else "gloo")
    return Ranks(rank, count)


def share(value: Any) -> Any:
    """What the first of the processes gives, in all of them, which must have met."""
    held = [value]
    dist.broadcast_object_list(held)
    return held[0]


_WHO = (("WORLD_SIZE", "1"), ("RANK", "0"))
# Set by accelerate's launcher.
_SHARDED = {"ACCELERATE_USE_FSDP": "FSDP", "ACCELERATE_USE_DEEPSPEED": "DeepSpeed"}
