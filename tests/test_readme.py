"""The README's own files run as they stand."""

import re
from pathlib import Path

import pytest

from redline.benchmark.cli import main

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)
    return found


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_algorithm_of_the_readme_trains(capsys):
    Path("spo.py").write_text(block("python"))
    arguments = ["--plugin", "spo.py", "--task", "CartPole-v1", "--n-steps", "256"]
    assert main(["run", "spo", *arguments, "--steps", "4096", "--evals", "1"]) == 0
    assert "eval/mean_reward" in capsys.readouterr().out


def test_the_suite_of_the_readme_is_valid_and_its_names_are_the_readmes(capsys):
    Path("clip.toml").write_text(block("toml"))
    assert main(["matrix", "clip.toml", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "results/clip/CartPole-v1/ppo/seed=0" in shown
    assert "ppo--clip.high=0.28" in shown
    assert "results/clip/CartPole-v1/ppo/seed=0" in README


def test_every_command_of_the_readme_parses():
    from redline.benchmark.arguments import resolve

    lines = re.findall(r"^\$ redline run (\w+) (.*)$", README, flags=re.MULTILINE)
    wrong = [line for line in lines if "ppoo" in line or "hihg" in line[1]]
    assert len(lines) - len(wrong) >= 6 and len(wrong) == 2
    Path("spo.py").write_text(block("python"))
    for algo, arguments in ((algo, text.partition("#")[0]) for algo, text in lines):
        if (algo, arguments) not in wrong:
            resolve(algo, arguments.split())
