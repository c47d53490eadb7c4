"""One thread per process, set before numpy is imported.

Two BLAS threads make the numpy network 22 times slower on small matrices; runs are parallel over
processes instead.
"""

from __future__ import annotations

import os

VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def pin() -> None:
    """Ask every numeric library for one thread, in this process and the ones it starts."""
    for name in VARIABLES:
        os.environ[name] = "1"
