"""Runs, matrices, statistics and reports: the one training loop and what surrounds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redline.benchmark.loading import load as load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    # On demand: it needs Gymnasium, and every command imports this package.
    if name == "load":
        from redline.benchmark.loading import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
