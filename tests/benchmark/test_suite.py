"""Suites: which cells they stand for, and what is refused before the first one."""

from pathlib import Path

import pytest

from redline.benchmark import cli, suite, suite_files
from redline.benchmark.errors import BadInput

SMALL = """
tasks = ["CartPole-v1", "Acrobot-v1"]
seeds = [0, 1]
algorithms = ["reinforce"]

[settings]
steps = 300

[[variants]]
algorithm = "ppo"
tasks = ["CartPole-v1"]
settings = { clip.high = 0.3, "clip.schedule" = "fixed" }
"""


def written(folder: Path, text: str) -> str:
    file = folder / "small.toml"
    file.write_text(text)
    return str(file)


def test_cells_take_turns_and_carry_their_settings(tmp_path: Path) -> None:
    cells = suite.cells(suite_files.read(written(tmp_path, SMALL)), Path("out"))
    ppo = "ppo--clip.high=0.3--clip.schedule=fixed"
    assert [cell.folder.as_posix() for cell in cells] == [
        f"out/{path}/seed={seed}"
        for seed in (0, 1)
        for path in ("CartPole-v1/reinforce", f"CartPole-v1/{ppo}", "Acrobot-v1/reinforce")
    ]
    assert cells[1].resolved.recipe.clip.high == 0.3
    assert {cell.resolved.run.steps for cell in cells} == {300}
    assert [cell.resolved.run.seed for cell in cells] == [0, 0, 0, 1, 1, 1]


SWEEP = """
tasks = ["CartPole-v1"]
seeds = [0]

[[variants]]
algorithms = ["grpo", "dapo"]
settings = { lr = 0.01 }
axes = { clip.high = [0.15, 0.3], "group_size" = [2, 8] }
"""


@pytest.mark.parametrize(
    ("only", "paths"),
    [
        (["reinforce"], ["CartPole-v1/reinforce", "Acrobot-v1/reinforce"]),
        (["Acrobot-v1"], ["Acrobot-v1/reinforce"]),
        (["ppo", "Acr*"], ["CartPole-v1/ppo--clip.high=0.3--clip.schedule=fixed", "Acrobot-v1/r"]),
        (["ppo--*"], ["CartPole-v1/ppo--clip.high=0.3--clip.schedule=fixed"]),
    ],
)
def test_a_part_of_a_matrix_may_be_chosen(
    only: list[str], paths: list[str], tmp_path: Path
) -> None:
    cells = suite.cells(suite_files.read(written(tmp_path, SMALL)), Path("out"), seeds=[0])
    found = [cell.folder.as_posix() for cell in suite.chosen(cells, only)]
    assert len(found) == len(paths)
    assert all(a.startswith(f"out/{b}") for a, b in zip(found, paths, strict=True))


def test_a_part_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, SMALL)
    assert cli.main(["matrix", file, "--only", "reinforce", "pppo"]) == 2
    assert "unknown method or task of --only 'pppo'; nearest: ppo" in capsys.readouterr().err


def test_axes_stand_for_every_combination(tmp_path: Path) -> None:
    cells = suite.cells(suite_files.read(written(tmp_path, SWEEP)), Path("out"))
    assert [cell.variant for cell in cells] == [
        f"{algo}--clip.high={high}--group_size={size}--lr=0.01"
        for algo in ("grpo", "dapo")
        for high in (0.15, 0.3)
        for size in (2, 8)
    ]
    last = cells[-1].resolved.recipe
    assert (last.clip.high, last.group_size, last.lr) == (0.3, 8, 0.01)


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        ("lr = [0.1]", "lr is an axis and a setting of one variant; keep one of them"),
        ("group_size = 4", "axis group_size must be a list of values, got 4"),
        ("group_size = []", "axis group_size must be a list of values, got []"),
        ("group_size = [4, 4]", "axis group_size lists 4 twice"),
        ("group_sise = [4, 8]", "unknown flag '--group-sise'; nearest: --group-size"),
    ],
)
def test_axes_that_cannot_be(axes: str, sentence: str, tmp_path: Path) -> None:
    text = SWEEP.partition("axes")[0] + f"axes = {{ {axes} }}\n"
    with pytest.raises(BadInput) as refused:
        suite.cells(suite_files.read(written(tmp_path, text)), Path("out"))
    assert sentence in str(refused.value)


def test_seeds_and_steps_can_be_given_anew(tmp_path: Path) -> None:
    read = suite_files.read(written(tmp_path, SMALL))
    cells = suite.cells(read, Path("out"), seeds=[7], steps=50)
    assert [(c.resolved.run.seed, c.resolved.run.steps) for c in cells] == [(7, 50)] * 3


def test_a_suite_may_bring_its_own_method(tmp_path: Path) -> None:
    plugin = """
from dataclasses import dataclass
from redline.algorithms.reinforce import Reinforce
from redline.algorithms.registry import register

@register("mine_of_suite")
@dataclass(frozen=True)
class Mine(Reinforce):
    "A copy under another name."
"""
    (tmp_path / "method.py").write_text(plugin)
    text = 'tasks = ["CartPole-v1"]\nseeds = [0]\nalgorithms = ["mine_of_suite"]\n'
    cells = suite.cells(
        suite_files.read(written(tmp_path, text + 'plugin = ["method.py"]')), tmp_path
    )
    assert cells[0].resolved.run.plugin == (tmp_path / "method.py",)


SEVERAL = """
tasks = ["CartPole-v1"]
seeds = [0, 1]

[[variants]]
algorithms = ["ppo", "npg"]

[[variants]]
algorithm = "trpo"
seeds = [1, 7]
"""


def test_a_variant_may_name_several_methods_and_its_own_seeds(tmp_path: Path) -> None:
    one = suite_files.read(written(tmp_path, SEVERAL))
    runs = [(c.resolved.algo, c.resolved.run.seed) for c in suite.cells(one, tmp_path)]
    assert runs == [("ppo", 0), ("npg", 0), ("ppo", 1), ("npg", 1), ("trpo", 1), ("trpo", 7)]
    assert one.seeds == [0, 1, 7]
    asked = suite.cells(one, tmp_path, seeds=[5])
    assert [(c.resolved.algo, c.resolved.run.seed) for c in asked] == [
        ("ppo", 5),
        ("npg", 5),
        ("trpo", 5),
    ]


def test_the_shipped_suites_resolve() -> None:
    for name in suite_files.shipped():
        assert suite.cells(suite_files.read(name), Path("out"))


REFUSED = {
    "unknown key": ("task = []", "unknown key 'task'; nearest: tasks"),
    "no tasks": ("seeds = [0]", "tasks must be a list of at least one name, got None"),
    "no seeds": ('tasks = ["CartPole-v1"]\nalgorithms = ["ppo"]', "seeds must be a list"),
    "negative seed": (SMALL.replace("[0, 1]", "[-1]"), "whole numbers from 0 on, got [-1]"),
    "seed twice": (SMALL.replace("[0, 1]", "[1, 1]"), "seeds lists 1 twice"),
    "task twice": (SMALL.replace("Acrobot", "CartPole"), "tasks lists 'CartPole-v1' twice"),
    "no method": ('tasks = ["CartPole-v1"]\nseeds = [0]', "must name at least one method"),
    "unknown method": (
        SMALL.replace('"reinforce"', '"reinforced"'),
        "reinforced on CartPole-v1: unknown algorithm 'reinforced'; nearest: reinforce",
    ),
    "unknown setting": (
        SMALL.replace("steps =", "stesp ="),
        "reinforce on CartPole-v1: unknown flag '--stesp'; nearest: --steps",
    ),
    "bad value": (SMALL.replace("300", '"many"'), "--steps must be a whole number, got 'many'"),
    "out of range": (SMALL.replace("300", "0"), "steps must be at least 1, got 0"),
    "seed as a setting": (SMALL.replace("steps =", "seed ="), "seed is no setting of a suite"),
    "help": (SMALL.replace("steps = 300", "help = true"), "help is no setting of a suite"),
    "list for one value": (
        SMALL.replace("300", "[1, 2]"),
        "reinforce on CartPole-v1: unexpected argument '2' after --steps, which takes one value",
    ),
    "flag as a value": (SMALL.replace("300", '"--help"'), "steps must be a value, got '--help'"),
    "flag as a task": (SMALL.replace("Acrobot-v1", "--help"), "task must be a value, got '--help'"),
    "unknown key of a variant": (SMALL.replace("algorithm =", "algo ="), "'algo'; nearest: algo"),
    "task of a variant": (
        SMALL.replace('tasks = ["CartPole-v1"]', 'tasks = ["CartPole-v0"]'),
        "unknown task of variant ppo 'CartPole-v0'; nearest: CartPole-v1",
    ),
    "neither algorithm nor algorithms": (
        SMALL + "[[variants]]\nseeds = [0]\n",
        "a variant needs the name of an algorithm, or algorithms = [names]",
    ),
    "both": (
        SMALL + '[[variants]]\nalgorithm = "ppo"\nalgorithms = ["npg"]\n',
        "a variant needs the name of an algorithm, or algorithms = [names]",
    ),
    "seeds of a variant": (SMALL + '[[variants]]\nalgorithm = "npg"\nseeds = []\n', "got []"),
    "same cell twice": (
        SMALL + '[[variants]]\nalgorithm = "reinforce"\n',
        "lists reinforce CartPole-v1 seed=0 twice",
    ),
    "no TOML": ("tasks = [", "is not valid TOML"),
}


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_suite_is_one_sentence_before_any_work(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main(["matrix", written(tmp_path, text), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1 and not out.exists()


def test_a_byte_order_mark_is_no_part_of_a_suite(tmp_path: Path) -> None:
    assert suite_files.read(written(tmp_path, "\ufeff" + SMALL)).seeds == [0, 1]


def test_a_suite_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="unknown suite 'dem'; nearest: demo"):
        suite_files.read("dem")
    (tmp_path / "pyproject.toml").touch()
    with pytest.raises(BadInput, match=r"cannot read suite .*none.toml: No such file"):
        suite_files.read(str(tmp_path / "none.toml"))
    near = written(tmp_path, SMALL)
    with pytest.raises(BadInput, match=rf"unknown suite file .*smaller.toml'; nearest: {near}"):
        suite_files.read(str(tmp_path / "smaller.toml"))


def test_a_suite_file_without_its_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clip.toml").write_text(SMALL)
    with pytest.raises(BadInput, match=r"'clip'; there is a file clip\.toml: say its whole name"):
        suite_files.read("clip")
