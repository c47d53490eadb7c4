"""What there is to run, answered without the heavy libraries."""

import json
import subprocess
import sys
import warnings

import pytest

from redline.algorithms import registry
from redline.benchmark import cli

HEAVY = {"torch", "gymnasium", "scipy", "pandas", "matplotlib", "tensorboard", "mujoco"}
HEAVY |= {"transformers", "tokenizers", "reasoning_gym"}

PROBE = """
import sys, time
start = time.process_time()
from redline.benchmark import cli
try:
    code = cli.main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print("seconds", time.process_time() - start, file=sys.stderr)
print("modules", *(name for name in sys.modules if "." not in name), file=sys.stderr)
"""


def run(*arguments: str) -> tuple[str, float, set[str]]:
    """Output, seconds of CPU time and imported packages of a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True
    )
    seconds, modules = done.stderr.splitlines()[-2:]
    return done.stdout, float(seconds.split()[1]), set(modules.split()[1:])


ANSWERS: dict[str, tuple[float, set[str]]] = {
    "": (0.5, set()),
    "--help": (0.5, set()),
    "run ppo --help": (1, set()),
    "run grpo --task llm:arithmetic --help": (1, set()),
    "matrix --help": (1, set()),
    "report --help": (1, set()),
    "eval --help": (1, set()),
    "list algorithms": (1, set()),
    "list": (1, {"gymnasium"}),
    "run ppo --task CartPole-v1 --lr abc": (1, set()),
    "run ppo --task llm:arithmetic --lr abc": (1, set()),
}


@pytest.mark.parametrize("command", ANSWERS)
def test_answers_are_quick_and_import_nothing_heavy(command: str) -> None:
    seconds, heavy = ANSWERS[command]
    _, spent, modules = run(*command.split())
    assert modules & HEAVY == heavy
    if spent >= seconds:  # once more, for a machine that was busy
        spent = run(*command.split())[1]
    assert spent < seconds


def test_algorithms_come_with_their_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "algorithms", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["algorithms"]
    assert list(listed) == registry.names()
    assert listed["ppo"].startswith("PPO-clip (arXiv:1707.06347")


def test_tasks_are_the_newest_ones_that_can_be_played(capsys: pytest.CaptureFixture[str]) -> None:
    from redline.envs.tasks import TaskError, control_task, task_names

    def works(name: str) -> bool:
        try:
            task = control_task(name)
        except (TaskError, ImportError):
            return False
        env = task.make()
        env.close()
        return env.spec is not None and env.spec.max_episode_steps is not None

    assert cli.main(["list", "tasks", "--json"]) == 0
    every = set(json.loads(capsys.readouterr().out)["tasks"])
    language = {name for name in every if name.startswith("llm:")}
    assert language == {"llm:arithmetic", "llm:rg:NAME", "llm:gsm8k", "llm:math", "llm:FILE.jsonl"}
    listed = {name for name in every if not name.startswith("llm:")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        playable = {name for name in task_names() if works(name)}
    assert listed <= playable
    versions = {name.rpartition("-v")[0] for name in playable}
    assert {name.rpartition("-v")[0] for name in listed} == versions and len(listed) == len(
        versions
    )


def test_suites_and_wrong_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "suites"]) == 0
    assert "demo" in capsys.readouterr().out
    assert cli.main(["list", "task"]) == 2
    assert capsys.readouterr().err == "redline: unknown list 'task'; nearest: tasks\n"
