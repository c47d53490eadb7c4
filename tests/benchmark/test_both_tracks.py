"""One suite with a control task and a language task: its matrix, its tables, its report."""

import json
from pathlib import Path

import pandas as pd
import pytest

from redline.benchmark import cli, records, tables

SUITE = """
question = "Both?"
tasks = ["CartPole-v1", "llm:arithmetic"]
seeds = [1000, 1001]

[settings]
evals = 1
tensorboard = false

[[variants]]
algorithm = "grpo"
tasks = ["CartPole-v1"]
settings = { steps = 200, eval_episodes = 2 }

[[variants]]
algorithm = "grpo"
tasks = ["llm:arithmetic"]
settings = { steps = 8, groups = 4, group_size = 2, eval_problems = 4, eval_samples = 2 }

[[variants]]
algorithm = "reinforce"
tasks = ["llm:arithmetic"]
settings = { steps = 8, episodes = 8, eval_problems = 4, eval_samples = 2 }
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained matrix."""
    folder = tmp_path_factory.mktemp("both")
    (folder / "both.toml").write_text(SUITE)
    assert cli.main(["matrix", str(folder / "both.toml"), "--out", str(folder / "results")]) == 0
    return folder / "results"


def test_a_setting_of_one_track_for_both_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE.replace("evals = 1", "evals = 1\nn_envs = 2"))
    assert cli.main(["matrix", str(suite), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "suite suite, grpo on llm:arithmetic: unknown flag '--n-envs'" in error
    assert "belongs to control tasks" in error and error.count("\n") == 1


def test_a_language_task_that_cannot_be_had_stops_the_matrix_before_its_first_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE.replace("llm:arithmetic", "llm:arith"))
    assert cli.main(["matrix", str(suite), "--out", str(tmp_path / "out")]) == 2
    assert "unknown task 'llm:arith'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_every_run_is_judged_by_the_measure_of_its_track(root: Path) -> None:
    results = records.load(root)
    assert not results.notes and (results.runs["status"] == "done").all()
    for run in results.runs.itertuples():
        name = "eval/accuracy" if run.task.startswith("llm:") else "eval/mean_reward"
        rows = [json.loads(line) for line in (root / run.path / "eval.jsonl").open()]
        assert run.final == rows[-1][name]
        assert run.best == max(row[name] for row in rows)
        if name == "eval/accuracy":
            assert run.final_greedy == rows[-1]["eval/accuracy_greedy"]
            assert run.untrained == rows[0]["eval/accuracy"]
            assert pd.isna(run.final_stochastic)
        else:
            assert run.untrained == rows[0]["eval/mean_reward_stochastic"]
    control, language = (tables.overview(results, task) for task in results.tasks)
    assert control.title.startswith("mean reward per episode") and "stochastic" in control.header
    assert language.title.startswith("accuracy on held-out") and "greedy" in language.header
    assert [row[0] for row in language.rows] == [
        "grpo--group_size=2--groups=4",
        "reinforce--episodes=8",
    ]


def test_the_report_has_a_section_for_each(root: Path) -> None:
    assert cli.main(["report", str(root), "--baseline", "reinforce--episodes=8"]) == 0
    text = (root / "report.md").read_text()
    head, control, language = text.partition("## All tasks")[0].split("\n## ")
    assert "2 runs of 200 environment steps, evaluated at the start and 1 time on 2 episo" in head
    assert "4 runs of 8 completions, evaluated at the start and 1 time on 4 problems" in head
    assert control.startswith("CartPole-v1") and language.startswith("llm:arithmetic")
    assert "Deterministic policy:" in control and "environment steps | seconds" in control
    assert "- transformers " in text and "integral of the mean reward or accuracy over" in text
    assert "Sampled answers:" in language and "Greedy answers:" in language
    assert "| completions | seconds per run | completions/s |" in language
    assert "share of right answers to held-out" in text and "mean reward per episode of the" in text
    assert (root / "report.png").stat().st_size > 10_000
    columns = pd.read_csv(root / "report.csv").columns
    assert {"final_stochastic", "final_greedy"} <= set(columns)


def test_panels_name_the_measure_and_the_unit_of_their_task(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    from redline.benchmark import plots

    seen: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: seen.append(figure))
    plots.save(records.load(root), root / "unused.png")
    labels = {
        title: (axis.get_xlabel(), axis.get_ylabel())
        for axis in seen[0].axes
        if (title := axis.get_title("left"))
    }
    assert labels == {
        "CartPole-v1": ("environment steps", "mean reward per episode"),
        "llm:arithmetic": ("completions", "accuracy on held-out problems"),
    }
