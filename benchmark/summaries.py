"""What TensorBoard shows besides curves: panels of its Custom Scalars page, histograms, images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

# Gives log pi - log pi_old and the advantage, [N] each.
Arrays = Callable[[], tuple[Any, Any]]

# Page -> panel -> curves that share its axes.
PANELS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "Clip": {
        "clip fraction, ratio std, advantage std, loss": (
            "train/clip_fraction",
            "train/ratio_std",
            "train/advantage_std",
            "train/loss",
        ),
        "gradient removed by the clip: above, below": (
            "train/clip_fraction_high",
            "train/clip_fraction_low",
        ),
        "outside the band, and removed by the clip": (
            "train/outside_band",
            "train/clip_fraction",
        ),
        "quantiles of the ratio": tuple(f"train/ratio_p{q}" for q in (1, 5, 50, 90, 95, 99)),
        "bounds in force": ("train/clip_lo", "train/clip_hi"),
    },
    "Step": {
        "KL(old||new): exact, k3": ("train/kl", "train/approx_kl"),
        "effective sample size": ("train/effective_sample_size",),
        "entropy": ("train/entropy",),
    },
}

# A ratio above the last edge counts in the last bucket, so that buckets stay comparable.
_RATIO_EDGES = np.linspace(0.0, 3.0, 61)
_BUCKETS = 40


class Buckets(NamedTuple):
    """Counts [K] between edges [K + 1]."""

    edges: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]

    def to_json(self) -> dict[str, list[float]]:
        """Plain data: what histograms.jsonl holds."""
        return {"edges": self.edges.round(6).tolist(), "counts": self.counts.tolist()}


def buckets(log_ratio: Any, advantage: Any) -> dict[str, Buckets]:
    """Histograms of the ratio after an update and of the advantages before it.

    Args:
        log_ratio: [N] log pi - log pi_old.
        advantage: [N].
    """
    top = _RATIO_EDGES[-1]
    ratio = np.minimum(np.exp(np.minimum(log_ratio, 20.0)), top)
    low, high = float(advantage.min()), float(advantage.max())
    edges = np.linspace(low, high if high > low else low + 1.0, _BUCKETS + 1)
    return {
        "train/ratio": Buckets(_RATIO_EDGES, np.histogram(ratio, _RATIO_EDGES)[0]),
        "train/advantage": Buckets(edges, np.histogram(advantage, edges)[0]),
    }


def layout_value() -> Any:
    """The summary value that makes the panels."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.plugins.custom_scalar import layout_pb2

    pages = [
        layout_pb2.Category(
            title=page,
            chart=[
                layout_pb2.Chart(
                    title=title,
                    # A tag is a regular expression there.
                    multiline=layout_pb2.MultilineChartContent(tag=[f"^{tag}$" for tag in tags]),
                )
                for title, tags in panels.items()
            ],
        )
        for page, panels in PANELS.items()
    ]
    layout = layout_pb2.Layout(category=pages)
    plugin = SummaryMetadata.PluginData(plugin_name="custom_scalars")
    tensor = TensorProto(dtype=DT_STRING, string_val=[layout.SerializeToString()])
    metadata = SummaryMetadata(plugin_data=plugin)
    return Summary.Value(tag="custom_scalars__config__", tensor=tensor, metadata=metadata)


def histogram_value(tag: str, found: Buckets) -> Any:
    """A summary value [K, 3] of left edge, right edge and count."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.plugins.histogram.metadata import create_summary_metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    rows = np.stack([found.edges[:-1], found.edges[1:], found.counts.astype(float)], axis=1)
    metadata: SummaryMetadata = create_summary_metadata(None, None)
    return Summary.Value(tag=tag, tensor=make_tensor_proto(rows), metadata=metadata)


def image_value(tag: str, png: bytes, width: int, height: int) -> Any:
    """A summary value that shows a picture."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    image = Summary.Image(encoded_image_string=png, width=width, height=height, colorspace=4)
    return Summary.Value(tag=tag, image=image)
