"""Settings from the command line and from suites; whatever does not fit ends in one sentence."""

from typing import Any

import pytest

from redline.benchmark import cli
from redline.benchmark.arguments import from_record, resolve, to_arguments
from redline.benchmark.errors import BadInput

PPO = ["--task", "CartPole-v1"]

REFUSED = {
    "not a number": ("--lr abc", "--lr must be a number, got 'abc'"),
    "fraction": ("--steps 1.5", "--steps must be a whole number, got '1.5'"),
    "infinite": ("--steps inf", "--steps must be a whole number, got 'inf'"),
    "choice": ("--clip.schedule linea", "or several joined by +, got 'linea'; nearest: linear"),
    "optional": ("--target-kl x", "--target-kl must be a number or None, got 'x'"),
    "list": ("--hidden 64 b", "--hidden must be whole numbers, got '64 b'"),
    "no value": ("--lr", "--lr needs a value: a number"),
    "no plugin": ("--plugin", "--plugin needs a value: the path of a Python file"),
    "stray": ("twice", "'twice' after --task, which takes one value; redline run ppo --h"),
    "two values": ("--lr 1 2", "unexpected argument '2' after --lr, which takes one value"),
    "value of a switch": ("--lr-decay=False", "--lr-decay takes no value; --no-lr-decay switches"),
    "text after a switch": ("--lr-decay no", "takes no value (--no-lr-decay switches it off)"),
    "off": ("--max-grad-norm off", "--max-grad-norm must be a number or None, got 'off'"),
    "fraction of a list": ("--hidden 1.5", "--hidden must be whole numbers, got '1.5'"),
    "unknown flag": ("--stesp 5", "unknown flag '--stesp'; nearest: --steps"),
    "refused by a part": ("--clip.low 2", "clip.low is a distance from 1 in [0, 1], got 2.0"),
    "nan": ("--lr nan", "lr must be a finite number, got nan"),
    "infinite number": ("--log-std-init inf", "--log-std-init must be a finite number, got inf"),
    "environments": ("--n-envs 10001", "--n-envs must be at most 10,000, got 10,001"),
    "zero": ("--steps 0", "steps must be at least 1, got 0"),
    "negative": ("--evals -1", "evals must be at least 0, got -1"),
    "no evaluation episode": ("--eval-episodes 0", "--eval-episodes must be at least 1, got 0"),
    "minibatches": ("--n-steps 10", "10 x --n-envs 8 = 80 does not divide into minibatches of 256"),
    "discount": ("--gamma 1.5", "gamma must lie in [0, 1], got 1.5"),
    "width": ("--hidden 64 0", "hidden must be widths of at least 1, got [64, 0]"),
    "device": ("--device cuda", "device 'cuda' needs --policy torch"),
}


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_one_sentence_and_exit_code_2(
    arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "ppo", *PPO, *arguments.split()]) == 2
    out, error = capsys.readouterr()
    assert sentence in error
    assert error.startswith("redline: ") and error.count("\n") == 1 and not out


def test_unknown_names_are_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, nearest in (
        (["rnu"], "run"),
        (["RUN"], "run"),
        (["run", "PPO", *PPO], "ppo"),
        (["matrix", "DEMO"], "demo"),
        (["run", "pppo", *PPO], "ppo"),
        (["run", "ppo", "--task", "CartPol-v1"], "CartPole-v1"),
    ):
        assert cli.main(arguments) == 2
        assert f"nearest: {nearest}" in capsys.readouterr().err


def test_a_group_of_one_and_whole_episodes_of_a_vector_environment_are_refused() -> None:
    with pytest.raises(BadInput, match=r"--group-size must be at least 2.*got 1"):
        resolve("grpo", [*PPO, "--group-size", "1"])
    with pytest.raises(
        BadInput, match=r"grpo plays whole episodes.*vectorization list, got 'sync'"
    ):
        resolve("grpo", [*PPO, "--vectorization", "sync"])


def test_help_lists_every_setting_with_its_description(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["run", "ppo", "--help"])
    assert not exit_.value.code
    shown = capsys.readouterr().out
    for text in ("--clip.high FLOAT", "Distance of the upper bound from 1", "--eval-episodes INT"):
        assert text in shown


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e3", 1000), ("1_000", 1000), ("8", 8), ("9007199254740993", 9007199254740993)],
)
def test_whole_numbers_may_be_written_in_several_ways(text: str, value: int) -> None:
    flags = ("--steps", text, "--hidden", text, "64", "--epochs", text)
    resolved = resolve("ppo", [*PPO, *flags])
    assert (resolved.run.steps, resolved.run.hidden) == (value, (value, 64))
    assert resolved.recipe.epochs == value


def test_settings_of_a_suite_are_the_flags_of_the_command_line() -> None:
    settings: dict[str, Any] = {
        "clip": {"high": 0.28, "schedule": "fixed"},
        "hidden": [32, 16],
        "lr_decay": False,
        "steps": 500,
    }
    flags = "--clip.high 0.28 --clip.schedule fixed --hidden 32 16 --no-lr_decay --steps 500"
    assert to_arguments(settings) == flags.split()
    resolved = resolve("ppo", [*PPO, *to_arguments(settings)])
    assert (resolved.recipe.clip.high, resolved.recipe.clip.schedule) == (0.28, "fixed")
    assert resolved.run.hidden == (32, 16) and not resolved.recipe.lr_decay


def test_a_run_reads_back_from_its_record_with_the_same_hash() -> None:
    resolved = resolve("ppo", [*PPO, "--clip.high", "0.3", "--hidden", "8", "--out", "somewhere"])
    record = {**resolved.to_json(), "overrides": dict(resolved.overrides)}
    assert from_record(record) == resolved
    assert from_record(record).hash == resolved.hash


def test_where_a_run_is_written_does_not_change_its_hash() -> None:
    assert resolve("ppo", [*PPO, "--out", "x"]).hash == resolve("ppo", PPO).hash
    assert resolve("ppo", [*PPO, "--seed", "1"]).hash != resolve("ppo", PPO).hash


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("--learning-rate", "--lr"), ("--total_timesteps", "--steps"), ("--clip-coef", "--clip.high")],
)
def test_names_of_other_libraries_are_answered_with_ours(theirs: str, ours: str) -> None:
    with pytest.raises(BadInput, match=rf"unknown flag .*; here it is {ours}$"):
        resolve("ppo", ["--task", "CartPole-v1", theirs, "1"])


def test_a_setting_that_the_method_lacks_is_not_promised() -> None:
    with pytest.raises(BadInput, match="unknown flag '--clip-coef'; nearest"):
        resolve("reinforce", ["--task", "CartPole-v1", "--clip-coef", "1"])


@pytest.mark.parametrize("spelling", ["None", "none"])
def test_a_limit_is_taken_away_in_either_spelling(spelling: str) -> None:
    for arguments in (["--max-grad-norm", spelling], [f"--max-grad-norm={spelling}"]):
        assert resolve("ppo", [*PPO, *arguments]).recipe.max_grad_norm is None
