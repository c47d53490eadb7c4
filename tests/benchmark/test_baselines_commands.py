"""External baselines on the command line: in matrices and reports, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from redline.benchmark import cli
from redline.benchmark.baselines import catalogue
from redline.benchmark.loggers import read_rows
from redline.benchmark.suite import cells
from redline.benchmark.suite_files import read

SUITE = """
tasks = ["CartPole-v1"]
seeds = [0]
algorithms = ["ppo", "sb3:ppo"]

[settings]
steps = 300
evals = 2
eval_episodes = 2

[[variants]]
algorithm = "sb3:ppo"
settings = { learning_rate = 1e-3, hidden = [8, 8] }
"""


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """A small matrix of one method of ours and one external, trained by two jobs."""
    folder = tmp_path_factory.mktemp("matrix")
    suite = folder / "both.toml"
    suite.write_text(SUITE)
    command = ["matrix", str(suite), "--jobs", "2", "--out", str(folder / "out")]
    assert cli.main(command) == 0
    return command, folder / "out"


def stamps(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.rglob("metrics.jsonl")}


def test_a_matrix_trains_both_and_the_folders_are_safe(matrix: tuple[list[str], Path]) -> None:
    out = matrix[1]
    found = {path.parent.relative_to(out).as_posix() for path in out.rglob("run.json")}
    assert found == {
        "CartPole-v1/ppo/seed=0",
        "CartPole-v1/sb3%3Appo/seed=0",
        "CartPole-v1/sb3%3Appo--hidden=%5B8,8%5D--learning_rate=0.001/seed=0",
    }
    for path in out.rglob("run.json"):
        assert json.loads(path.read_text())["status"] == "done"
        steps = [row["step"] for row in read_rows(path.parent / "eval.jsonl")]
        assert steps == ([0, 256, 512] if "sb3" in str(path) else [0, 512])


def test_running_again_does_nothing_and_other_settings_are_refused(
    matrix: tuple[list[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    command, out = matrix
    before = stamps(out)
    assert cli.main(command) == 0
    shown = capsys.readouterr()
    assert "3 runs are complete already" in shown.err and "(3 of 3 runs complete)" in shown.out
    run = ["run", "sb3:ppo", "--task", "CartPole-v1"]
    run += ["--steps", "300", "--evals", "2", "--eval-episodes", "2"]
    folder = str(out / "CartPole-v1/sb3%3Appo/seed=0")
    assert cli.main([*run, "--out", folder, "--gamma", "0.9"]) == 2
    assert "holds a run with other settings (gamma 0.98 -> 0.9" in capsys.readouterr().err
    assert stamps(out) == before


def test_a_failure_is_recorded_and_the_other_runs_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "nan.toml"
    # A learning rate that ends in weights that are no numbers.
    one_good = SUITE.replace('["ppo", "sb3:ppo"]', '["ppo"]')
    suite.write_text(one_good.replace("1e-3, hidden", "1e30, hidden"))
    out = tmp_path / "out"
    assert cli.main(["matrix", str(suite), "--out", str(out)]) == 1
    shown = capsys.readouterr().out
    assert "1 failed" in shown and "(1 of 2 runs complete)" in shown
    (path,) = out.glob("CartPole-v1/*1e+30/seed=0/run.json")
    data = json.loads(path.read_text())
    assert data["status"] == "failed" and "Traceback" in data["traceback"]


def test_reports_say_what_is_external(
    matrix: tuple[list[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    out = matrix[1]
    version = json.loads(next(out.rglob("run.json")).read_text())["versions"]["stable-baselines3"]
    note = (
        f"sb3:* are external: Stable-Baselines3 {version}, its own implementation, "
        "evaluated by the same evaluator"
    )
    assert cli.main(["report", str(out), "--baseline", "sb3:ppo"]) == 0
    shown = capsys.readouterr().out
    text = (out / "report.md").read_text()
    for part in (shown, text):
        assert note in part and "sb3:ppo--hidden=[8,8]--learning_rate=0.001" in part
        assert "final − sb3:ppo" in part and "area" in part
    assert cli.main(matrix[0]) == 0
    assert note in capsys.readouterr().out
    assert cli.main(["report", str(out / "CartPole-v1/ppo")]) == 0
    assert "external" not in capsys.readouterr().out


def test_the_footnote_names_every_library_and_version() -> None:
    def record(algo: str, **versions: str) -> dict[str, object]:
        return {"algo": algo, "versions": versions}

    both = [
        record("sb3:ppo", **{"stable-baselines3": "2.9.2"}),
        record("sb3:a2c", **{"stable-baselines3": "2.8.0"}),
        record("sb3:trpo"),
    ]
    assert catalogue.footnote(both) == (
        "sb3:* are external: Stable-Baselines3 2.8.0 / 2.9.2 and sb3-contrib of unknown version, "
        "their own implementation, evaluated by the same evaluator"
    )
    assert catalogue.footnote([record("ppo", torch="2.0")]) is None


@pytest.mark.parametrize(
    "algo, arguments, sentence",
    [
        ("sb3:pppo", "", "unknown algorithm 'sb3:pppo'; nearest: sb3:ppo"),
        ("SB3:ppo", "", "unknown algorithm 'SB3:ppo'; nearest: sb3:ppo"),
        ("sb3:ppo", "--policy mlp", "sb3:ppo brings its own networks"),
        ("sb3:a2c", "--vectorization sync", "which is --vectorization list, got 'sync'"),
        ("sb3:ppo", "--action-bound tanh", "which is --action-bound clip, got 'tanh'"),
        ("sb3:ppo", "--lr 0.1", "unknown flag '--lr'; here it is --learning-rate"),
        ("sb3:ppo", "--clip.high 0.1", "unknown flag '--clip.high'; here it is --clip-range"),
        ("ppo", "--learning-rate 0.1", "unknown flag '--learning-rate'; here it is --lr"),
        ("sb3:ppo", "--learning-rate fast", "--learning-rate must be a number above 0, or lin_"),
        ("sb3:ppo", "--learning-rate lin_0", "--learning-rate must be a number above 0, or lin_"),
        ("sb3:ppo", "--clip-range nan", "--clip-range must be a finite number, got nan"),
        ("sb3:ppo", "--batch-size 0", "--batch-size must be above 0, got 0"),
        (
            "sb3:ppo",
            "--batch-size 1",
            "--normalize-advantage needs --n-steps x --n-envs and --batch-size",
        ),
        ("sb3:ppo", "--gamma 1.5", "gamma must lie in [0, 1], got 1.5"),
        ("sb3:trpo", "--line-search-shrinking-factor 1", "must lie between 0 and 1, got 1.0"),
        ("sb3:ppo", "--n-steps", "--n-steps needs a value: a whole number"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    algo: str, arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", algo, "--task", "CartPole-v1", *arguments.split()]
    assert cli.main(command) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "eval", "matrix"])
def test_a_library_that_is_missing_is_one_sentence(
    command: str,
    matrix: tuple[list[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(catalogue, "find_spec", lambda module: None)
    arguments = {
        "run": ["sb3:ppo", "--task", "CartPole-v1", "--out", str(tmp_path / "out")],
        "eval": [str(matrix[1] / "CartPole-v1/sb3%3Appo/seed=0")],
        "matrix": [matrix[0][1], "--out", str(tmp_path / "out")],
    }[command]
    assert cli.main([command, *arguments]) == 2
    assert capsys.readouterr().err == (
        "redline: sb3:ppo needs Stable-Baselines3, which is not installed; "
        "pip install stable-baselines3 sb3-contrib\n"
    )
    assert not (tmp_path / "out").exists()


def test_runs_of_ours_import_nothing_of_it(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom redline.benchmark import cli\n"
        "assert cli.main(sys.argv[1:]) == 0\n"
        "print(*(name for name in sys.modules if name.startswith(('stable_base', 'sb3_c'))))"
    )
    few = ("--steps", "100", "--evals", "1", "--eval-episodes", "1")
    for arguments in (
        ["run", "reinforce", "--task", "CartPole-v1", *few],
        ["matrix", "mujoco-quick", "--dry-run"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == ""


def test_baselines_are_listed_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "algorithms", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert list(listed["baselines"]) == catalogue.names() == ["sb3:a2c", "sb3:ppo", "sb3:trpo"]
    assert not set(listed["baselines"]) & set(listed["algorithms"])
    assert listed["baselines"]["sb3:trpo"] == (
        "external: TRPO (arXiv:1502.05477) as sb3-contrib implements it (pip package sb3-contrib)"
    )
    assert cli.main(["list", "algorithms"]) == 0
    assert "\nbaselines:\n  sb3:a2c" in capsys.readouterr().out


def test_the_shipped_suite_with_a_baseline(tmp_path: Path) -> None:
    found = cells(read("mujoco-quick"), tmp_path)
    assert len(found) == 3 * 5 * 2
    runs = [cell.resolved.run for cell in found]
    assert {(run.steps, run.evals, run.eval_episodes) for run in runs} == {(100_000, 10, 10)}
    assert {cell.variant for cell in found} == {"npg", "trpo", "ppo", "grpo", "sb3:ppo"}
