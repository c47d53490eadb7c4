"""Processes that train one model together: each runs the model on its rows, all hold the results.

The launcher (`accelerate launch`, `torchrun`) starts the same command several times and says in the
environment which process is which. All of them draw the same prompts and keep the same batch;
sampling, scoring and derivatives are split by rows, and their results are added up, so that
advantages, denominators, clips, early stopping and metrics are those of one process, computed by
each. Parameters stay equal because every process takes the same step; with FSDP each holds and
steps its part of them (`redline.llm_track.sharding`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from redline.algorithms.core.types import Array

T = TypeVar("T")


class RanksError(ValueError):
    """Processes that cannot train together, in one sentence."""


@dataclass(frozen=True)
class Ranks:
    """One process among several.

    Attributes:
        rank: Its number, from 0 on.
        count: How many there are.
        in_step: Each holds a part of the parameters, so that all run the model equally often.
    """

    rank: int = 0
    count: int = 1
    in_step: bool = False

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

    def most(self, number: int) -> int:
        """The largest of the processes' numbers where they are in step, else this one's."""
        if not self.in_step:
            return number
        found = torch.tensor(number, device="cuda" if dist.get_backend() == "nccl" else "cpu")
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return int(found)

    def once(self, function: Callable[[], T]) -> T:
        """What a function gives in the first process, in all of them.

        Raises:
            ValueError: The function raised it; it is raised in all of them.
        """
        if self.count == 1:
            return function()
        held: list[Any] = [None, None]
        if self.rank == 0:
            try:
                held[0] = function()
            except ValueError as error:
                held[1] = error
        dist.broadcast_object_list(held)
        if held[1] is not None:
            raise held[1]
        found: T = held[0]
        return found

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
        RanksError: The launcher's configuration asks for what there is not.
    """
    count, rank = (int(os.environ.get(name, default)) for name, default in _WHO)
    if count == 1:
        return ALONE
    in_step = _sharded()
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    if not dist.is_initialized():
        dist.init_process_group("nccl" if on_gpu else "gloo")
    return Ranks(rank, count, in_step)


def _sharded() -> bool:
    """accelerate's configuration spreads the parameters.

    Raises:
        RanksError: It asks for what there is not.
    """
    for name, what in _REFUSED.items():
        if _asked(name):
            raise RanksError(
                f"{what} is not supported: choose FSDP (fsdp_version: 2) or data parallelism "
                "(distributed_type: MULTI_GPU)"
            )
    precision = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    if precision != "no":
        raise RanksError(
            f"mixed_precision must be 'no' in accelerate's configuration, got {precision!r}: dtype "
            "is a setting of the run"
        )
    if not _asked("ACCELERATE_USE_FSDP"):
        return False
    version = os.environ.get("FSDP_VERSION", "1")
    if version != "2":
        raise RanksError(f"fsdp_version must be 2 in accelerate's configuration, got {version}")
    for name, setting, instead in _UNUSED:
        if _asked(name):
            raise RanksError(f"{setting} must be false in accelerate's configuration: {instead}")
    return True


def _asked(name: str) -> bool:
    return os.environ.get(name, "false").lower() in ("1", "true")


def share(value: Any) -> Any:
    """What the first of the processes gives, in all of them, which must have met."""
    held = [value]
    dist.broadcast_object_list(held)
    return held[0]


_WHO = (("WORLD_SIZE", "1"), ("RANK", "0"))
# What accelerate's launcher sets, and its configuration calls so, where it would change a run.
_REFUSED = {
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "parallelism_config",
}
_UNUSED = (
    ("FSDP_OFFLOAD_PARAMS", "fsdp_offload_params", "parameters stay where the device setting says"),
    (
        "FSDP_ACTIVATION_CHECKPOINTING",
        "fsdp_activation_checkpointing",
        "gradient_checkpointing is a setting of the run",
    ),
)
