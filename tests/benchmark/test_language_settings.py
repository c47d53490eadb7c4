"""Settings of both tracks: the task decides which there are, and what does not fit is told."""

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from redline.algorithms import registry
from redline.algorithms.core.types import Need
from redline.benchmark import cli, tracks
from redline.benchmark.arguments import from_record, resolve, to_arguments
from redline.benchmark.checking import check
from redline.benchmark.errors import BadInput
from redline.benchmark.runs import run_path
from redline.benchmark.tracks import ControlConfig, LanguageConfig
from redline.llm_track.settings import LanguageSettings

TASK = ["--task", "llm:arithmetic"]
# Runs of control tasks are found again by a hash over these.
CONTROL = {
    *("task", "seed", "steps", "out", "overwrite", "resume", "evals", "eval_episodes", "n_envs"),
    *("vectorization", "policy", "device", "hidden", "activation", "log_std_init"),
    *("action_bound", "normalize_observation", "normalize_reward", "tensorboard", "plugin"),
    "breaker",
    "telemetry",
}


def test_the_task_decides_which_settings_there_are() -> None:
    control = resolve("grpo", ["--task", "CartPole-v1", "--n-envs", "2"])
    language = resolve("grpo", [*TASK, "--temperature", "0.7", "--eval-problems", "3"])
    assert control.control.n_envs == 2 and control.to_json()["run"].keys() == CONTROL
    assert language.language.temperature == 0.7 and language.run.steps == 10_240
    of_track = {field.name for field in dataclasses.fields(LanguageSettings)}
    shared = {field.name for field in dataclasses.fields(tracks.RunConfig)}
    assert language.to_json()["run"].keys() == of_track | shared | {"review_every"}
    assert control.hash != language.hash


def test_help_lists_the_settings_of_the_track(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for task in ("llm:arithmetic", "CartPole-v1"):
        with pytest.raises(SystemExit):
            cli.main(["run", "grpo", "--task", task, "--help"])
        shown[task] = " ".join(capsys.readouterr().out.replace("│", " ").split())
    language, control = shown.values()
    for text in (
        "--steps INT Sampled completions. (default: 10240)",
        "--temperature FLOAT Of sampling and of the policy that learns",
        "--groups INT Groups per rollout (initial states on control, prompts on a language",
        "--minibatch-size {None}|INT Elements (completions on a language model",
    ):
        assert text in language
    assert "--steps INT Environment steps." in control
    assert "--n-envs" not in language and "--temperature" not in control


REFUSED = {
    "control flag": ("grpo", "--n-envs 4", "'--n-envs' here: it belongs to control tasks", ""),
    "near a control flag": ("ppo", "--n-step 4", "unknown flag '--n-step'; nearest: --steps", ""),
    "typo": ("grpo", "--temprature 1", "unknown flag '--temprature'; nearest: --temperature", ""),
    "choice": ("grpo", "--dtype float8", "--dtype must be one of float32, bfloat16", "nearest: fl"),
    "steps": (
        "ppo",
        "--n-steps 64",
        "ppo on llm:arithmetic must be asked for whole",
        "of --n-steps",
    ),
    "no episodes": ("ppo", "--episodes none", "must be asked for whole completions", ""),
    "group": ("grpo", "--group-size 1", ": --group-size must be at least 2", ""),
    "problems": ("grpo", "--eval-problems 0", ": --eval-problems must be at least 1, got 0", ""),
    "stale": ("grpo", "--stale -1", "stale must be at least 0, got -1", ""),
    "head": ("ppo", "--value-hidden 0", "--value-hidden must be at least 1, or none, got 0", ""),
    "horizon": (
        "cpi",
        "--max-completion 65",
        ": --horizon must be at least --max-completion",
        "is 65",
    ),
    "nan": ("grpo", "--temperature nan", "temperature must be a finite number, got nan", ""),
    "weight": ("grpo", "--reward random", "by a number, got 'random'", "this: --reward random 1"),
    "one weight": ("grpo", "--reward exact 0.5 random", "got 'exact 0.5", "exact 0.5 random 1"),
    "weight first": ("grpo", "--reward 1 exact", "got '1 exact'", "this: --reward exact 1"),
    "equals": ("grpo", "--reward=exact=0.5", "got 'exact=0.5'", "this: --reward exact 0.5"),
    "no reward": ("grpo", "--reward", "--reward needs a value: names, each followed by a", ""),
    "external": ("sb3:ppo", "", "sb3:ppo trains on control tasks alone", ""),
    # Only with the task and the model at hand.
    "digits": ("grpo", "--digits 99", ": --digits must be from 1 to 15, got 99", ""),
    "prompt": ("grpo", "--prompt step", "unknown prompt 'step'", "nearest: steps"),
    "model": (
        "grpo",
        "--model ./tinny",
        "model './tinny': there is no such folder",
        "give 'tiny', 'smollm2-135m', a local",
    ),
    "context": ("grpo", "--max-completion 600", "exceed the context of tiny (512 tokens)", ""),
    "cold": (
        "grpo",
        "--temperature 0",
        ": --temperature must be above 0 while training, got 0.0",
        "",
    ),
    "device": ("grpo", "--device gpu", "device 'gpu' cannot be used", ""),
    "layers": ("grpo", "--freeze.layers 9", "--freeze.layers must be from 0 to 3", ", got 9"),
    "names": ("grpo", "--freeze.names lm_hed", "--freeze.names must fit names of", "got 'lm_hed'"),
    "frozen": ("grpo", "--freeze.names *", "every parameter is frozen: nothing is left to", ""),
    "dense": (
        "trpo",
        "--solver dense",
        "solver dense takes at most 20,000 parameters",
        "use solver",
    ),
}


@pytest.mark.parametrize(("algo", "flags", "sentence", "hint"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_one_sentence_before_any_work(
    algo: str,
    flags: str,
    sentence: str,
    hint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    assert cli.main(["run", algo, *TASK, *flags.split(), "--out", str(out)]) == 2
    shown, error = capsys.readouterr()
    assert sentence in error and hint in error
    assert error.startswith("redline: ") and error.count("\n") == 1 and not shown
    assert not out.exists()


def test_a_flag_of_the_other_track_is_told_on_control_tasks_too() -> None:
    with pytest.raises(BadInput, match="'--temperature' here: it belongs to language tasks"):
        resolve("ppo", ["--task", "CartPole-v1", "--temperature", "1"])


def test_unknown_tasks_and_missing_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "grpo", "--task", "llm:arith"]) == 2
    assert "unknown task 'llm:arith'" in (error := capsys.readouterr().err)
    assert "nearest: llm:arithmetic\n" in error

    def find_spec(name: str) -> Any:
        return None if name == "transformers" else importlib.util.find_spec(name)

    monkeypatch.setattr(tracks, "find_spec", find_spec)
    assert cli.main(["run", "grpo", *TASK]) == 2
    assert capsys.readouterr().err == (
        "redline: task 'llm:arithmetic' needs transformers: pip install \"redline-rl[llm]\"\n"
    )


def test_a_model_and_a_generator_are_part_of_the_name_and_of_the_record(tmp_path: Path) -> None:
    arguments = ["--task", "llm:rg:chain_sum", "--model", "org/small", "--lr", "1e-6"]
    settings = {"generator": {"min_terms": 2, "rate": 0.5, "signed": True, "word": "a"}}
    resolved = resolve("grpo", [*arguments, *to_arguments(settings)])
    assert resolved.language.generator == settings["generator"]
    name = "grpo--generator.min_terms=2--generator.rate=0.5--generator.signed=True"
    path = run_path(tmp_path, resolved).relative_to(tmp_path)
    assert path.as_posix() == (
        f"llm%3Arg%3Achain_sum/{name}--generator.word=a--lr=1e-06--model=org%2Fsmall/seed=0"
    )
    record = json.loads(json.dumps({**resolved.to_json(), "overrides": resolved.overrides}))
    again = from_record(record)
    assert again == resolved and again.hash == resolved.hash
    other = resolve("grpo", [*arguments, *to_arguments({"generator": {"min_terms": 3}})])
    assert other.hash != resolved.hash


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--temperature-end", "0"], "--temperature-end must be above 0, got 0"),
        (["--temperature-end", "0.5", "--stale", "1"], "needs rollouts of the newest policy"),
    ],
)
def test_a_schedule_of_the_temperature_must_fit(more: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check(resolve("grpo", [*TASK, *more]))


@pytest.mark.parametrize("algo", registry.names())
def test_every_method_has_settings_for_language_tasks(algo: str) -> None:
    resolved = resolve(algo, TASK)
    assert not resolved.overrides and isinstance(resolved.run, LanguageConfig)
    need: Need = resolved.recipe.build().need
    assert need.episodes == 256 and resolved.recipe.gamma == 1.0
    assert from_record({**resolved.to_json(), "overrides": {}}) == resolved
    assert isinstance(resolve(algo, ["--task", "CartPole-v1"]).run, ControlConfig)
