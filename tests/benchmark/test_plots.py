"""Which panels a figure has, and that none of its places stays empty."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from redline.benchmark import plots
from redline.benchmark.records import Results

KEY = {"method": "a", "seed": 0}
LOGGED = {
    "train/kl": "KL(old‖new) in nats",
    "train/clip_fraction": "share of gradient clipped",
    "train/kl_coef": "coefficient of the KL penalty",
    "train/mixture_alpha": "weight α of the new policy",
}
REWARD = "mean reward per episode"


def panels(
    monkeypatch: pytest.MonkeyPatch,
    tasks: list[str],
    logged: dict[str, float],
    rewards: tuple[float, float] = (1.0, 2.0),
) -> list[tuple[str, Any]]:
    """(label of the vertical axis, columns of the grid that it takes) of all panels that show."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: figures.append(self))
    steps = pd.DataFrame({"step": [10.0, 20.0], "eval/mean_reward": rewards})
    evals = pd.concat([steps.assign(task=task, **KEY) for task in tasks])
    updates = evals.drop(columns="eval/mean_reward").assign(**{name: np.nan for name in LOGGED})
    results = Results(evals, evals, updates.assign(**logged), [], [], [])
    plots.save(results, Path("unused.png"))
    (figure,) = figures
    return [
        (axis.get_ylabel(), axis.get_subplotspec().colspan)
        for axis in figure.axes
        if axis.get_visible()
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_panels_are_what_some_method_logs_and_fill_their_rows(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = dict.fromkeys(list(LOGGED)[:count], 0.1)
    found = panels(monkeypatch, ["CartPole-v1"], logged)
    assert [label for label, _ in found] == [REWARD, *(LOGGED[name] for name in logged)]
    columns = min(count, 2)
    assert list(found[0][1]) == list(range(columns))
    # A lone last panel is as wide as the figure.
    assert sum(len(at) for _, at in found[1:]) == columns * ((count + 1) // 2)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_what_no_method_has_takes_no_place(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    logged = {"train/kl": 0.1, "train/clip_fraction": value}
    found = panels(monkeypatch, ["CartPole-v1"], logged)
    assert found == [(REWARD, range(1)), (LOGGED["train/kl"], range(1))]


def test_every_task_has_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    found = panels(monkeypatch, ["CartPole-v1", "Acrobot-v1"], {"train/kl": 0.1})
    assert found == [
        (label, range(k, k + 1)) for label in (REWARD, LOGGED["train/kl"]) for k in range(2)
    ]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("reward", [0.0, 500.0, -1e17])
def test_a_constant_curve_is_drawn_without_a_warning(
    reward: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = {"train/kl": 0.0, "train/clip_fraction": 0.1}
    assert panels(monkeypatch, ["CartPole-v1"], logged, rewards=(reward, reward))


@pytest.mark.parametrize("name", ["long-" * 20, "without_a_break" * 7])
def test_long_names_stay_within_the_figure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: figures.append(self))
    rows = pd.DataFrame({"step": [10.0, 20.0], "eval/mean_reward": [1.0, 2.0], "seed": 0})
    both = [
        rows.assign(task=f"{task}-{name}", method=f"{name}{i}") for i in (1, 2) for task in "ab"
    ]
    frame = pd.concat(both)
    plots.save(Results(frame, frame, frame, [], [], []), Path("unused.png"))
    (figure,) = figures
    figure.draw_without_rendering()
    found = [text for text in figure.findobj(Text) if name[:20] in text.get_text()]
    assert len(found) == 4  # two titles, two names in the legend
    for text in found:
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0, text
