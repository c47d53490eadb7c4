"""Plugins from the command line: their code counts, and their mistakes end in one sentence."""

import dataclasses
import json
import os
import subprocess
from pathlib import Path

import pytest
from command import redline

from redline.benchmark import cli
from redline.benchmark.arguments import resolve

PLUGIN = """
from dataclasses import dataclass
from redline.algorithms.reinforce import Reinforce
from redline.algorithms.registry import register

@register("{name}")
@dataclass(frozen=True)
class Mine(Reinforce):
    "A copy under another name."

    extra: int = 1

    def build(self):
        return super().build()
"""
TASK = ("--task", "CartPole-v1")
FEW = (*TASK, "--steps", "50", "--evals", "1", "--eval-episodes", "1", "--out", "out")


def run(folder: Path, name: str, *plugins: str) -> subprocess.CompletedProcess[str]:
    flags = [part for path in plugins for part in ("--plugin", path)]
    return redline(folder, "run", name, *FEW, *flags)


def test_other_code_is_another_run_and_records_work_from_anywhere(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir(), elsewhere.mkdir()
    for name in ("a", "b"):
        (here / f"{name}.py").write_text(PLUGIN.format(name=f"mine_{name}"))
    assert run(here, "mine_a", "a.py", "b.py").returncode == 0
    assert "complete already" in run(here, "mine_a", "a.py").stdout
    assert redline(elsewhere, "eval", os.path.relpath(here / "out", elsewhere)).returncode == 0
    with (here / "b.py").open("a") as file:
        file.write("# another\n")
    assert "complete already" in run(here, "mine_a", "a.py", "b.py").stdout
    with (here / "a.py").open("a") as file:
        file.write("# another\n")
    shown = run(here, "mine_a", "a.py")
    assert shown.returncode == 2 and "other settings (the plugin's code changed)" in shown.stderr


def test_all_plugins_are_recorded_with_absolute_paths(tmp_path: Path) -> None:
    files = tuple(tmp_path / f"{name}.py" for name in ("c", "d"))
    for file in files:
        file.write_text(PLUGIN.format(name=f"mine_{file.stem}"))
    relative = [os.path.relpath(file) for file in files]
    resolved = resolve("mine_c", [*TASK, "--plugin", relative[0], "--plugin", relative[1]])
    assert resolved.run.plugin == files


def test_the_hash_of_a_recipe_of_our_own_does_not_depend_on_plugins(tmp_path: Path) -> None:
    (tmp_path / "e.py").write_text(PLUGIN.format(name="mine_e"))
    plain = resolve("ppo", TASK)
    beside = resolve("ppo", [*TASK, "--plugin", str(tmp_path / "e.py")])
    assert plain.hash == beside.hash and beside == dataclasses.replace(plain, run=beside.run)


MISTAKES = {
    "raises": ("super().build()", "1 / 0", "(mistake.py:14): ZeroDivisionError: division by zero"),
    "refuses": ("return super()", "raise ValueError('no'); (0)", "(mistake.py:14): ValueError: no"),
    "exits": ("return super()", "raise SystemExit(0); (0)", "(mistake.py:14): SystemExit: 0"),
    "nothing": ("return super()", "super()", "build() must give an Algorithm, got NoneType"),
    "clash": ("extra", "seed", "its field 'seed' is a setting of every run already"),
    "type": ("extra: int", "extra: 'Missing'", "(mistake.py): NameError"),
    "no discount": ("Mine(Reinforce)", "Mine", "needs a field 'gamma'"),
}


@pytest.mark.parametrize(("old", "new", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_sentence(
    old: str, new: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"mine_{tmp_path.name.lower()}"
    file = tmp_path / "mistake.py"
    file.write_text(PLUGIN.format(name=name).replace(old, new))
    assert cli.main(["run", name, *TASK, "--plugin", str(file)]) == 2
    error = capsys.readouterr().err
    assert sentence in error and name in error and error.count("\n") == 1


def test_an_installed_package_brings_its_method_by_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    metadata = site / "someones_package-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "someones_method.py").write_text(PLUGIN.format(name="someones"))
    about = "Metadata-Version: 2.1\nName: someones-package\nVersion: 1.0\n"
    (metadata / "METADATA").write_text(about)
    (metadata / "entry_points.txt").write_text("[redline.algorithms]\nsomeones = someones_method\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    shown = redline(tmp_path, "run", "someones", *FEW)
    assert shown.returncode == 0 and "eval/mean_reward" in shown.stdout
    assert "someones" in redline(tmp_path, "list", "algorithms").stdout


FAULTY = """
from dataclasses import dataclass, replace
from redline.algorithms.core.surrogates import from_objective
from redline.algorithms.ppo import PPO
from redline.algorithms.registry import register

def objective(xp, e):
    return e.ratio * e.advantge

@register("faulty")
@dataclass(frozen=True)
class Faulty(PPO):
    "Its objective asks for what is not there."

    def build(self):
        return replace(super().build(), surrogate=from_objective(objective, name="faulty"))
"""


def test_a_fault_while_training_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    arguments = [*FEW[:-1], str(tmp_path / "out"), "--plugin", str(tmp_path / "faulty.py")]
    assert cli.main(["run", "faulty", *arguments]) == 1
    sentence = "AttributeError: 'Elements' object has no attribute 'advantge' (faulty.py:8)"
    assert f"redline: the run failed: {sentence}" in capsys.readouterr().err
    assert json.loads((tmp_path / "out/run.json").read_text())["error"] == sentence
