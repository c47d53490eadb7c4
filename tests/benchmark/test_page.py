"""report.html: one file, safe with any name, complete with any mix of runs."""

import base64
import csv
import json
import re
import struct
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written_runs import TASK, write_run

from redline.benchmark import cli
from redline.benchmark.comparison import judging
from redline.benchmark.contents import contents
from redline.benchmark.page import figures, parts
from redline.benchmark.page.render import render
from redline.benchmark.page.sections import Page, Picture, Section
from redline.benchmark.panels import styles_of
from redline.benchmark.records import load


class Reader(HTMLParser):
    """Text of every tag of a kind, and attributes of all tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: dict[str, list[str]] = {}
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.text.setdefault(tag, []).append("")
        self.attributes += [(tag, name, value or "") for name, value in attributes]

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attributes]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.text[tag][-1] += data


def page_of(root: Path, findings: Sequence[str] = (), **how: Any) -> str:
    results = load(root)
    return render(root, contents(results, judging(results, **how), findings))


def test_the_first_screen_has_the_question_the_answer_and_a_figure(tmp_path: Path) -> None:
    for seed in range(4):
        write_run(tmp_path, "ppo", seed, [0.0, 100.0 + seed])
        write_run(tmp_path, "trpo", seed, [0.0, 200.0 + seed])
    cells = {f"{TASK}/ppo/seed=0": {"task": TASK, "variant": "ppo", "seed": 0}}
    record = {"suite": "small", "question": "Which one?", "command": "redline matrix small"}
    (tmp_path / "matrix.json").write_text(json.dumps({**record, "cells": cells}))
    page = page_of(tmp_path)
    first, rest = page.split('class="legend"')
    assert "Which one?" in Reader(first.partition("<main>")[0] + "</body></html>").text["h1"][0]
    for part in ("101.5", "+100.0", "▲ better", "4/4 seeds", "data:image/svg+xml;base64,"):
        assert part in first
    assert "redline matrix small" in rest and "P(better)" in rest


def test_the_page_needs_no_other_file(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path, "ppo", seed, [0.0, 40.0, 10.0 * seed])
    page = page_of(tmp_path)
    reader = Reader(page)
    assert reader.open == []
    links = [value for _, name, value in reader.attributes if name in ("src", "href")]
    assert links and all(link.startswith(("#", "data:image/svg+xml;base64,")) for link in links)
    targets = {value for _, name, value in reader.attributes if name == "id"}
    assert {link[1:] for link in links if link.startswith("#")} <= targets
    for code in re.findall(r"base64,([^\"]+)", page):
        assert b"</svg>" in base64.b64decode(code)
    assert "<script" not in page and len(page) < 3e6


def test_a_report_is_files_that_say_the_same_every_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, last in enumerate((10.0, 20.0, 30.0)):
        write_run(tmp_path, "ppo", seed, [0.0, 40.0, last])
    write_run(tmp_path, "reinforce", 0, [5.0, 15.0])
    assert cli.main(["report", str(tmp_path), "--baseline", "ppo"]) == 0
    assert "20.00 ± 24.84" in capsys.readouterr().out
    text = (tmp_path / "report.md").read_text()
    for part in (
        "20.00 ± 24.84",
        "(report.png)",
        "4 runs of 1,000 environment steps",
        "final − ppo",
        "-5.00",
        "- torch 2.0",
        load(tmp_path).runs["hash"][0],
    ):
        assert part in text
    with (tmp_path / "report.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["final"]) for row in rows] == [10.0, 20.0, 30.0, 15.0]
    image = (tmp_path / "report.png").read_bytes()
    assert image[:4] == b"\x89PNG" and min(struct.unpack(">II", image[16:24])) > 500
    page = (tmp_path / "report.html").read_bytes()
    assert cli.main(["report", str(tmp_path), "--baseline", "ppo"]) == 0
    assert (tmp_path / "report.md").read_text() == text
    assert (tmp_path / "report.html").read_bytes() == page


def test_names_and_errors_of_any_kind_are_text(tmp_path: Path) -> None:
    write_run(tmp_path, "ppo", 0, [0.0, 1.0], task="<b>:Ünsafe/*x*-v0")
    write_run(tmp_path, "ppo", 1, [], status="failed", error="<script>alert(1)</script>")
    page = page_of(tmp_path)
    assert "<script" not in page and "<b>:" not in page
    assert "&lt;b&gt;:Ünsafe/*x*-v0" in page
    assert "&lt;script&gt;alert(1)" in page


def test_several_tasks_stand_side_by_side_and_are_scored_together(tmp_path: Path) -> None:
    for task in (TASK, "Acrobot-v1"):
        for seed in range(3):
            write_run(tmp_path, "ppo", seed, [0.0, 20.0 + seed], task=task)
            write_run(tmp_path, "reinforce", seed, [0.0, 10.0 + seed], task=task)
    write_run(tmp_path, "trpo", 0, [0.0, 15.0])
    write_run(tmp_path, "npg", 0, [], status="failed", error="ValueError: broke")
    page = page_of(tmp_path)
    headings = Reader(page).text["h2"]
    assert headings[:3] == ["Acrobot-v1", TASK, "All tasks"]
    assert "▼ worse" in page and "… too few seeds" in page
    assert "ValueError: broke" in page and "0/1 (1 failed)" in page
    assert "CartPole-v1: 0 is 1, 1 is 21" in page


def test_bounds_are_drawn_where_they_move(tmp_path: Path) -> None:
    for method, end in (("ppo", 1.2), ("grpo", 1.1)):
        folder = write_run(tmp_path, method, 0, [0.0, 1.0])
        rows = [{"step": 50 * i, "train/clip_hi": 1.2 if i < 2 else end} for i in range(1, 4)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert f"{TASK}: upper bound of the clip" in page_of(tmp_path)
    assert "upper bound" not in page_of(tmp_path / TASK / "ppo")


def test_a_matrix_without_a_run_that_is_done_still_gives_a_page(tmp_path: Path) -> None:
    write_run(tmp_path, "ppo", 0, [], status="running")
    write_run(tmp_path, "trpo", 0, [0.0, None])
    assert "1 running" in page_of(tmp_path, baseline="trpo", by="area")


def test_sections_can_be_added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def extra(page: Page) -> Section | None:
        lines = [str(len(page.said.results.runs))]
        return Section("Findings", prose=["one *more* `x_y`"], lines=lines)

    monkeypatch.setattr(parts, "_AFTER_TASKS", (*parts._AFTER_TASKS, extra, lambda page: None))
    write_run(tmp_path, "ppo", 0, [0.0, 1.0])
    page = page_of(tmp_path, ["ppo: **warning** no_clip"])
    assert "<li>ppo: warning no_clip</li>" in page
    assert 'id="findings"' in page and "one <em>more</em> <code>x_y</code>" in page


def test_figures_stop_where_the_page_would_grow_too_large(tmp_path: Path) -> None:
    write_run(tmp_path, "ppo", 0, [0.0, 1.0])
    page = Page(contents(load(tmp_path), None), {}, room=10)
    small, large = Picture("x" * 6, "small"), Picture("x" * 7, "large")
    assert page.fit([small, None, large]) == [small]
    assert page.left_out == 1 and page.room == 4
    spared = Page(contents(load(tmp_path), None), {}, room=10)
    assert spared.fit([small], spare=5) == [] and spared.fit([small], spare=4) == [small]


def test_where_room_is_short_the_first_metric_of_every_task_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(*arguments: Any, title: str, **more: Any) -> Picture:
        return Picture("x" * 4, title)

    monkeypatch.setattr(figures, "curve", drawn)
    for task in (TASK, "Acrobot-v1"):
        write_run(tmp_path, "ppo", 0, [0.0, 1.0], task=task)
    section = parts._dynamics(Page(contents(load(tmp_path), None), {}, room=14))
    assert section is not None and [picture.title for picture in section.pictures] == [
        "Acrobot-v1: KL(old‖new) in nats",
        "Acrobot-v1: share of gradient clipped",
        f"{TASK}: KL(old‖new) in nats",
    ]


def test_a_task_without_the_baseline_has_a_sentence_and_no_empty_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("redline.benchmark.plots.save", lambda results, path: path.touch())
    monkeypatch.setattr(figures, "curve", lambda *arguments, **more: None)
    for method, task in (("ppo", TASK), ("trpo", TASK), ("trpo", "Acrobot-v1"), ("npg", "A-v0")):
        write_run(tmp_path, method, 0, [0.0, 1.0], task=task)
    write_run(tmp_path, "ppo", 0, [0.0, 1.0], task="Alone-v0")
    assert cli.main(["report", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    text = (tmp_path / "report.md").read_text()
    sentences = [f"for ppo was not run on {task}." for task in ("Acrobot-v1", "A-v0")]
    for sentence in (*sentences, "for only ppo was run on Alone-v0."):
        assert all(where.count(sentence) == 1 for where in (shown, page, text))
    assert [where.lower().count("compared with ppo by") for where in (shown, page, text)] == [1] * 3


def test_a_figure_keeps_the_digits_of_its_labels() -> None:
    # Dots one by one, and all of a row as one path.
    values = {"a--lr=0.000123456": [0.0, 1 / 3], "b--lr=0.000246912": [i / 7 for i in range(25)]}
    picture = figures.intervals(values, styles_of(list(values)), title="x")
    drawn = base64.b64decode(picture.source.partition(",")[2]).decode()
    assert all(f"{name}<" in drawn for name in values)
    paths = re.findall(r'<path [^>]*d="([^"]*)"', drawn)
    assert paths and not re.search(r"\.\d{3}", "".join(paths))
    assert max(path.count("L") for path in paths) == 25


def test_names_beside_an_axis_are_short_and_told_apart() -> None:
    start, end = "ppo--clip.high=0.28--", "--group_size=8--lr=0.000123456"
    names = [f"{start}epochs={epochs}{end}" for epochs in (1, 2, 44)]
    assert figures._short(["ppo", names[0]]) == ["ppo", f"{names[0][:12]}…{names[0][-11:]}"]
    assert figures._short(["ppo", *names]) == [
        "ppo",
        "ppo…epochs=1",
        "ppo…epochs=2",
        "ppo…epochs=44",
    ]
    others = ["my_algorithm--advantage=leave_one_out", "my_algorithm--advantage=leave_two_out"]
    assert figures._short(others) == ["my_algorithm…ave_one_out", "my_algorithm…ave_two_out"]
    apart = ["x" * 60 + str(i) + "y" * 60 for i in range(2)]
    assert max(map(len, figures._short(apart))) == 52


def test_many_methods_stay_below_three_megabytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for method in range(8):
        for seed in range(2):
            flags = ("--lr", str(1e-4 * (method + 1)))
            write_run(tmp_path, "ppo", seed, rng.random(11).tolist(), *flags)
    assert len(page_of(tmp_path)) < 1e6
