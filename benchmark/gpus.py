"""Which GPU each job of a matrix may see."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from redline.benchmark.config import Resolved
from redline.benchmark.errors import BadInput

# CUDA numbers the GPUs that this lists from 0 on, so a run on "cuda" takes the first of them.
VISIBLE = "CUDA_VISIBLE_DEVICES"


def shared_out(gpus: int | None, jobs: int, runs: Iterable[Resolved]) -> Sequence[str | None]:
    """What `VISIBLE` is for each job: job i has GPU i modulo `gpus` for itself or with others.

    Args:
        gpus: How many are shared out; None: every job sees all of them.
        jobs: How many runs train at the same time.
        runs: What is to be trained.

    Returns:
        A value per job; None: as it is.

    Raises:
        BadInput: There are not that many GPUs, or fewer jobs or no runs that would use them.
    """
    if gpus is None:
        return [None] * jobs
    if gpus < 1:
        raise BadInput(f"--gpus must be at least 1, got {gpus}")
    if gpus > jobs:
        raise BadInput(f"--gpus {gpus} needs as many jobs or more: --jobs {gpus}, got {jobs}")
    if not any(str(getattr(run.run, "device", "cpu")).startswith("cuda") for run in runs):
        raise BadInput("--gpus is for runs on GPUs, and none of these has the device cuda")
    import torch

    there = torch.cuda.device_count()
    if gpus > there:
        raise BadInput(f"--gpus must be at most {there}, the GPUs that torch sees, got {gpus}")
    names = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    names = names or [str(number) for number in range(there)]
    return [names[job % gpus] for job in range(jobs)]
