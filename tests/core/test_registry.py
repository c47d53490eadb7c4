"""Discovery, plugins, and the promise that recipes are light to import."""

import subprocess
import sys
from pathlib import Path

import pytest

from redline.algorithms import registry

PLUGIN = """
from dataclasses import dataclass
from redline.algorithms.ppo import PPO
from redline.algorithms.registry import register

@register("{name}")
@dataclass(frozen=True)
class Mine(PPO):
    \"\"\"A method of my own.\"\"\"
"""


RECIPE = """from dataclasses import dataclass
from redline.algorithms.registry import register

@register("mine")
@dataclass
class Mine:
    gamma: float = 0.9
    def build(self): ...
"""
FUNCTION = RECIPE.replace("@dataclass\n", "").replace("class Mine", "def mine()")


def test_every_module_with_a_recipe_is_found():
    folder = Path(registry.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "registry"}
    assert set(registry.names()) == modules


def test_every_recipe_builds_and_describes_itself():
    for name in registry.names():
        recipe = registry.get(name)
        assert recipe.__doc__ and len(recipe.__doc__.partition("\n")[0]) > 20
        recipe().build()


def test_an_unknown_name_gives_the_nearest():
    with pytest.raises(registry.UnknownAlgorithm, match=r"'ppoo'; nearest: ppo"):
        registry.get("ppoo")
    with pytest.raises(registry.UnknownAlgorithm, match=r"'PPO'; nearest: ppo"):
        registry.get("PPO")


def test_a_name_that_resembles_nothing_lists_all():
    with pytest.raises(registry.UnknownAlgorithm, match="known: cispo, cpi, cpi_penalty, dapo"):
        registry.get("zzzzzzzz")


def test_a_taken_name_is_refused():
    with pytest.raises(ValueError, match=r"'ppo' is registered already by redline.algorithms.ppo"):
        registry.register("ppo")(object)


def test_a_plugin_is_registered_once(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN.format(name="mine"))
    registry.load_plugin(file)
    registry.load_plugin(file)
    assert registry.get("mine")().build().surrogate.name == "clipped_ratio"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "registers no algorithm"),
        ("\nx = 1 / 0\n", r"broken.py:2: ZeroDivisionError"),
        ("def f(:\n", r"broken.py:1: SyntaxError"),
        ("\nimport sys\nsys.exit(3)", r"broken.py:3: SystemExit: 3"),
        (RECIPE.replace("@dataclass\n", ""), r"broken.py:4: .*must be a dataclass, got Mine"),
        (
            RECIPE.replace("@dataclass\n", "").replace("class Mine", "def mine()"),
            r"must be a dataclass, got mine; write @reg",
        ),
        (RECIPE.replace("build", "make"), r"Mine needs a method build\(\) -> Algorithm"),
        (RECIPE.replace(" = 0.9", ""), r"algorithm 'mine': field 'gamma' needs a default"),
        (RECIPE.replace('"mine"', "3"), r"name of an algorithm is lower-case letters, got 3"),
        (PLUGIN.format(name="ppo"), r"broken.py:6: ValueError: algorithm 'ppo' is registered"),
    ],
)
def test_a_broken_plugin_is_named_with_its_line(tmp_path, text, message):
    file = tmp_path / "broken.py"
    file.write_text(text)
    for _ in range(2):  # the second time as well: nothing of the first is left
        with pytest.raises(registry.PluginError, match=message):
            registry.load_plugin(file)


def test_a_missing_plugin_is_named():
    with pytest.raises(registry.PluginError, match=r"'nowhere.py': no such file"):
        registry.load_plugin("nowhere.py")
    with pytest.raises(registry.PluginError, match=r"'.': a folder, not a file"):
        registry.load_plugin(".")


def test_recipes_are_imported_without_torch_or_gymnasium():
    code = (
        "import sys; from redline.algorithms import registry; registry.names();"
        "print([m for m in ('torch', 'gymnasium', 'scipy', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
