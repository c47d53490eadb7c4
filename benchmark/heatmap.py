"""The gradient norm of every layer over a run, as a picture."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

PREFIX = "train/grad_norm/"
_SIZE = (5.0, 2.5)
_DOTS = 120


def _place(name: str) -> tuple[int, list[int | str]]:
    """From the input to the output of a network."""
    order = ("embedding", "block", "layer", "", "norm", "head", "log_std")
    kind = re.sub(r"_?\d+$", "", name)
    parts = re.split(r"(\d+)", name)
    key: list[int | str] = [int(part) if part.isdigit() else part for part in parts]
    return order.index(kind if kind in order else ""), key


def table(rows: Iterable[Mapping[str, Any]]) -> tuple[list[str], Any]:
    """Layers from input to output, and their norms [layer, update]; nan where there is none.

    Args:
        rows: Of metrics.jsonl.
    """
    found = list(rows)
    names = {key.removeprefix(PREFIX) for row in found for key in row if key.startswith(PREFIX)}
    layers = sorted(names, key=_place)
    norms = [[row.get(PREFIX + name) for row in found] for name in layers]
    return layers, np.array(norms, dtype=float).reshape(len(layers), len(found))


def picture(layers: list[str], norms: Any) -> tuple[bytes, int, int]:
    """A PNG with its width and height: layers down, updates across, log10 of the norm as colour."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, dpi=_DOTS, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    shown = np.log10(np.maximum(norms, 1e-12))
    extent = (0.5, norms.shape[1] + 0.5, len(layers) - 0.5, -0.5)
    drawn = axes.imshow(shown, aspect="auto", interpolation="nearest", extent=extent)
    axes.set_yticks(range(len(layers)), layers)
    axes.set_xlabel("update")
    figure.colorbar(drawn, label="log10 of the gradient norm")
    content = io.BytesIO()
    figure.savefig(content, format="png")
    return content.getvalue(), round(_SIZE[0] * _DOTS), round(_SIZE[1] * _DOTS)
