"""What TensorBoard shows, read back from the event file."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import close
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.util.tensor_util import make_ndarray

from redline.benchmark import heatmap
from redline.benchmark.arguments import resolve
from redline.benchmark.summaries import buckets
from redline.benchmark.train import train

SMALL = ["--task", "CartPole-v1", "--steps", "1536", "--evals", "1", "--eval-episodes", "2"]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_costs(rows: list[dict[str, Any]], names: Any) -> list[dict[str, Any]]:
    costs = ("time/", "memory/")
    return [{k: row[k] for k in names if not k.startswith(costs)} for row in rows]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for telemetry in ("basic", "full"):
        found[telemetry] = tmp_path_factory.mktemp(telemetry)
        train(resolve("ppo", [*SMALL, "--telemetry", telemetry]), found[telemetry])
    return found


def events(folder: Path) -> EventAccumulator:
    reader = EventAccumulator(str(folder), size_guidance={"tensors": 0, "images": 0})
    reader.Reload()
    return reader


def test_four_curves_share_a_panel_that_is_there_at_once(runs: dict[str, Path]) -> None:
    reader = events(runs["basic"])
    (event,) = reader.Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0])
    first = layout.category[0].chart[0]
    assert (layout.category[0].title, first.title) == (
        "Clip",
        "clip fraction, ratio std, advantage std, loss",
    )
    curves = ["clip_fraction", "ratio_std", "advantage_std", "loss"]
    assert list(first.multiline.tag) == [f"^train/{name}$" for name in curves]
    shown = {tag for page in layout.category for chart in page.chart for tag in chart.multiline.tag}
    assert {tag.strip("^$") for tag in shown} <= set(reader.Tags()["scalars"])


def test_histograms_are_in_both_files_and_count_every_element(runs: dict[str, Path]) -> None:
    rows = lines(runs["basic"] / "histograms.jsonl")
    assert [row["step"] for row in rows] == [512, 1024, 1536]
    reader = events(runs["basic"])
    for tag in ("train/ratio", "train/advantage"):
        shown = reader.Tensors(tag)
        assert [event.step for event in shown] == [512, 1024, 1536]
        for event, row in zip(shown, rows, strict=True):
            left, right, count = make_ndarray(event.tensor_proto).T
            assert count.sum() == 512 == sum(row[tag]["counts"])
            close(left, row[tag]["edges"][:-1], atol=1e-6)
            close(right, row[tag]["edges"][1:], atol=1e-6)


def test_buckets_by_hand() -> None:
    log_ratio = np.log([0.0251, 1.0, 1.01, 2.99, 50.0])
    found = buckets(log_ratio, np.array([-1.0, -1.0, 0.0, 1.0, 1.0]))
    ratio, advantage = found["train/ratio"], found["train/advantage"]
    assert {int(i): int(ratio.counts[i]) for i in np.flatnonzero(ratio.counts)} == {
        0: 1,
        20: 2,  # 1 and 1.01 in [1, 1.05)
        59: 2,  # 2.99, and what is beyond
    }
    assert (advantage.counts[0], advantage.counts[20], advantage.counts[-1]) == (2, 1, 2)
    flat = buckets(np.zeros(3), np.full(3, 2.0))["train/advantage"]
    assert flat.counts.sum() == 3


def test_full_telemetry_changes_nothing_else(runs: dict[str, Path]) -> None:
    basic, full = (lines(runs[name] / "metrics.jsonl") for name in ("basic", "full"))
    assert without_costs(full, basic[0]) == without_costs(basic, basic[0])
    more = full[0].keys() - basic[0].keys()
    assert {f"train/grad_norm/layer_{i}" for i in (1, 2, 3)} <= more
    assert {f"follow/{i}" for i in range(10)} <= more
    assert {"train/clip_bias", "train/clip_bias_low", "train/clip_bias_high"} <= more
    assert {"memory/collect_mb", "memory/advantage_mb", "memory/policy_mb"} <= more
    assert {"time/advantage", "time/policy"} <= more
    assert 0.0 < full[0]["time/advantage"] < full[0]["time/update"]
    assert not any(name.startswith("follow/") for row in basic for name in row)


def test_the_heat_map_is_an_image_of_every_layer(runs: dict[str, Path]) -> None:
    from PIL import Image

    (tag,) = events(runs["full"]).Tags()["images"]
    last = events(runs["full"]).Images(tag)[-1]
    picture = Image.open(io.BytesIO(last.encoded_image_string))
    assert picture.size == (last.width, last.height) and last.step == 1536
    assert len(picture.convert("RGB").getcolors(2**20) or []) > 10
    assert events(runs["basic"]).Tags()["images"] == []


def test_layers_stand_from_input_to_output() -> None:
    names = ["head", "block_10", "block_2", "embedding", "norm"]
    rows = [{f"train/grad_norm/{name}": float(i) for i, name in enumerate(names)}, {"step": 2}]
    layers, norms = heatmap.table(rows)
    assert layers == ["embedding", "block_2", "block_10", "norm", "head"]
    close(norms[:, 0], [3.0, 2.0, 1.0, 4.0, 0.0])
    assert np.isnan(norms[:, 1]).all()
    assert heatmap.table([{"train/loss": 1.0}])[0] == []
