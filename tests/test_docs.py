"""The pages of docs/ do as they say."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from redline.algorithms import registry
from redline.benchmark import suite, suite_files
from redline.benchmark.arguments import resolve
from redline.benchmark.cli import COMMANDS, main

DOCS = Path(__file__).parents[1] / "docs"
# In place of the budgets of a page, which take minutes.
_RUN = ["--steps", "600", "--evals", "1", "--eval-episodes", "2", "--no-tensorboard"]


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands(page: str) -> list[list[str]]:
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return [shlex.split(line[2:]) for line in lines]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    registry.discover()
    monkeypatch.setattr(registry, "_RECIPES", dict(registry._RECIPES))


def test_adding_an_algorithm_works_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = blocks("adding-an-algorithm.md", "python")
    Path(re.match(r"# (\w+\.py)\n", source)[1]).write_text(source)
    # Figures have tests of their own.
    monkeypatch.setattr("redline.benchmark.plots.save", lambda results, path: path.touch())
    monkeypatch.setattr("redline.benchmark.page.figures.curve", lambda *a, **k: None)
    done = []
    for command in commands("adding-an-algorithm.md"):
        if command[0] == "pytest":  # run by the test of `redline new`
            assert Path(command[1]).is_file()
            continue
        program, name, *arguments = command
        assert program == "redline"
        if name == "run":
            arguments += _RUN
        if name == "compare":
            at = arguments.index("--seeds") + 1
            arguments[at:] = ["1", "--steps", "200"]
            arguments = [a for a in arguments if not a.startswith("sb3:")]
        assert main([name, *arguments]) == 0, command
        done.append(name)
    assert done == ["new", "run", "run", "run", "compare", "compare", "report"]
    assert "my_algo--leak=0.5" in Path("results/compare/report.html").read_text()


PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_somewhere_and_the_site_has_it(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in link:
            assert (DOCS / page).parent.joinpath(link).exists(), link
    assert re.search(rf"[ :]{re.escape(page)}$", (DOCS.parent / "mkdocs.yml").read_text(), re.M)


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_suites_of_a_page_are_valid(page: str) -> None:
    if page == "adding-an-algorithm.md":  # carried out below
        return
    for program, *arguments in commands(page):
        if program != "redline":
            continue
        name, *rest = arguments
        assert name in COMMANDS
        if name == "run":
            resolve(rest[0], rest[1:])
        if name == "matrix":
            suite.cells(suite_files.read(rest[0]), Path("out"))
    for text in blocks(page, "toml"):
        Path("page.toml").write_text(text)
        assert suite.cells(suite_files.read("page.toml"), Path("out"))


def test_every_method_has_a_page() -> None:
    folder = DOCS / "methods"
    shipped = [name for name in registry.names() if registry.plugin_code(name) is None]
    for name in shipped:
        text = (folder / f"{name}.md").read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.*)$", text, flags=re.M)
        assert headings[0].startswith(f"{name}: ")
        assert headings[1:] == ["Recipe", "What to expect", "When it fails"]
        assert f"redline run {name} " in text and "Source: " in text
        assert f"[{name}]({name}.md)" in (folder / "index.md").read_text(encoding="utf-8")


def test_metrics_that_are_explained_are_metrics() -> None:
    schema = (DOCS.parent / "results" / "README.md").read_text(encoding="utf-8")
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `([a-z]+/\w+)`", text, flags=re.M)
    assert len(explained) > 20
    for name in explained:
        family = name.rpartition("_")[0]
        assert f"`{name}`" in schema or f"`{family}_" in schema, name


def test_the_two_forms_of_the_page_are_one_method() -> None:
    (source,) = blocks("adding-an-algorithm.md", "python")
    Path("root.py").write_text(source.replace('"root_', '"other_root_'))
    registry.load_plugin("root.py")
    rng = np.random.default_rng(0)
    old = rng.normal(size=(3, 5))
    elements = {
        "log_prob": old + rng.normal(size=old.shape),
        "old_log_prob": old,
        "advantage": rng.normal(size=old.shape),
        "mask": rng.random(old.shape) < 0.7,
    }
    first, second = (
        registry.get(f"other_root_{form}")().build().surrogate.weights(np, **elements)
        for form in ("weight", "objective")
    )
    np.testing.assert_allclose(np.asarray(first.w), np.asarray(second.w), rtol=1e-10)
