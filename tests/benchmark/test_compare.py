"""`redline compare` and `redline new`, as a user types them."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from redline.algorithms import registry
from redline.benchmark import cli
from redline.benchmark.arguments import resolve
from redline.benchmark.commands.compare import CompareConfig, _alike, _cells, _method
from redline.benchmark.errors import BadInput

TASK = ("--task", "CartPole-v1")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    registry.discover()
    monkeypatch.setattr(registry, "_RECIPES", dict(registry._RECIPES))


def test_what_is_missing_is_trained_and_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Figures have tests of their own.
    monkeypatch.setattr("redline.benchmark.plots.save", lambda results, path: path.touch())
    monkeypatch.setattr("redline.benchmark.page.figures.curve", lambda *a, **k: None)
    # Every seed of two networks that have learned nothing yet.
    methods = ["ppo --clip.high 0.3", "reinforce"]
    few = ["--steps", "200", "--seeds", "1", "--out", "out dir"]
    assert cli.main(["compare", *methods, *TASK, *few]) == 0
    shown = capsys.readouterr()
    assert "[2/2]" in shown.err and "final − reinforce" in shown.out
    assert f"report: {Path('out dir/report.html')}, of these runs; redline report 'out dir'" in (
        shown.out
    )
    assert "too few seeds (1 and 1; at least 3 each)" in shown.out
    assert cli.main(["compare", *methods, "ppo", *TASK, *few, "--by", "area"]) == 0
    shown = capsys.readouterr()
    assert "2 runs are complete already" in shown.err and "[1/1] ppo CartPole" in shown.err
    assert "area − ppo" in shown.out
    # Runs of other calls are in the folder, and take no part.
    assert cli.main(["compare", "reinforce", methods[0], *TASK, *few]) == 0
    shown = capsys.readouterr().out
    assert "final − ppo--clip.high=0.3" in shown and "\n  ppo  " not in shown
    page = Path("out dir/report.html").read_text()
    assert "How do 2 methods compare on CartPole-v1?" in page and "2 runs of 200" in page


def test_a_dry_run_trains_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "ppo", "trpo", *TASK, "--seeds", "2", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "to do trpo CartPole-v1 seed=1" in shown and "0 done, 4 to do" in shown
    assert not Path("results").exists()


REFUSED = {
    "no methods": ([], "say at least two algorithms"),
    "one method": (["ppo", *TASK], "say at least two algorithms"),
    "no task": (["ppo", "trpo"], "needs --task"),
    "no seeds": (["ppo", "trpo", *TASK, "--seeds", "0"], "--seeds must be at least 1, got 0"),
    "unknown": (["ppo", "trpoo", *TASK], "unknown algorithm 'trpoo'; nearest: trpo"),
    "twice": (["ppo", "ppo", *TASK], "ppo is named twice"),
    "own task": (["ppo", "trpo --task x", *TASK], "--task of 'trpo --task x' holds for all"),
    "bad setting": (["ppo", "trpo --detla 1", *TASK], "unknown flag '--detla'; nearest: --delta"),
    "baseline": (["ppo", "trpo", *TASK, "--baseline", "npg"], "--baseline must be one of ppo, t"),
    "quote": (["ppo", "trpo '", *TASK], "is no method with settings: No closing quotation"),
    "jobs": (["ppo", "trpo", *TASK, "--jobs", "0"], "--jobs must be at least 1, got 0"),
}


@pytest.mark.parametrize("arguments, sentence", REFUSED.values(), ids=REFUSED)
def test_a_comparison_that_cannot_be_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert not Path("results").exists()


def test_methods_get_the_same_budget_and_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    methods = ["ppo", "sb3:ppo", "--task", "HalfCheetah-v5"]
    # 1,000,000 steps by our preset and 100,000 where rl-zoo has none.
    assert cli.main(["compare", *methods]) == 2
    assert "the presets' budgets differ (1,000,000 of ppo, " in capsys.readouterr().err
    cells = _cells(_alike([_method(m, _CONFIG) for m in methods[:2]]), Path("out"), 1)
    assert {cell.resolved.control.eval_episodes for cell in cells} == {20}


_CONFIG = CompareConfig(task="HalfCheetah-v5", steps=5000)


def load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_new_method_passes_its_own_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["new", "leaky_one", "--out", "a folder"]) == 0
    shown = capsys.readouterr().out
    assert "pytest a folder/test_leaky_one.py" in shown
    test = load("a folder/test_leaky_one.py")
    test.test_the_weight_is_the_derivative_of_the_objective()
    test.test_without_a_leak_it_is_ppo()
    test.test_it_trains(tmp_path, capsys)
    # Its presets are ppo's, so that a comparison compares methods.
    assert resolve("leaky_one", TASK).recipe.lr == resolve("ppo", TASK).recipe.lr == 1e-3
    with pytest.raises(BadInput, match=r"leak must lie in \[0, 1\], got 2"):
        resolve("leaky_one", [*TASK, "--leak", "2"])


def test_a_test_of_a_new_method_finds_a_wrong_weight() -> None:
    assert cli.main(["new", "leaky_two"]) == 0
    file = Path("leaky_two.py")
    file.write_text(file.read_text().replace("leak * w, w)", "0.5 * leak * w, w)"))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        load("test_leaky_two.py").test_the_weight_is_the_derivative_of_the_objective()


@pytest.mark.parametrize("name", ["ppo", "My-Algo", "class", "1st", ""])
def test_a_name_that_no_method_can_carry_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["new", name]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(Path().glob("*.py"))


def test_no_file_is_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    Path("test_mine.py").write_text("precious")
    assert cli.main(["new", "mine"]) == 2
    assert "test_mine.py is there already" in capsys.readouterr().err
    assert Path("test_mine.py").read_text() == "precious" and not Path("mine.py").exists()


PLAIN = """
from dataclasses import dataclass
from typing import ClassVar
from redline.algorithms.ppo import PPO
from redline.algorithms.registry import register

@register("plain_one")
@dataclass(frozen=True)
class Plain(PPO):
    "A copy under another name."
    {line}
"""


def test_methods_with_and_without_presets_are_not_compared_unsaid(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("plain.py").write_text(PLAIN.format(line=""))
    arguments = ["plain_one", "ppo", *TASK, "--plugin", "plain.py", "--dry-run"]
    assert cli.main(["compare", *arguments]) == 0
    assert "plain_one has no preset for CartPole-v1, and ppo has" in capsys.readouterr().out


def test_presets_of_a_method_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    Path("wrong.py").write_text(
        PLAIN.format(line='presets_of: ClassVar[str] = "pppo"').replace("plain_one", "plain_two")
    )
    assert cli.main(["compare", "plain_two", "ppo", *TASK, "--plugin", "wrong.py"]) == 2
    assert "presets_of of plain_two 'pppo'; nearest: ppo" in capsys.readouterr().err
