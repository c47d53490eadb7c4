"""Settings that do not fit a task or this machine are refused before the first run."""

from pathlib import Path

import pytest
import torch
import toys
from gymnasium import register

from redline.benchmark import cli
from redline.benchmark.arguments import resolve
from redline.benchmark.errors import BadInput
from redline.benchmark.preflight import check_tasks
from redline.benchmark.train import make_track


class Spaceless(toys.Counter):
    """No observation space."""

    def __init__(self) -> None:
        super().__init__()
        del self.observation_space


class Actionless(toys.Counter):
    """No action space."""

    def __init__(self) -> None:
        super().__init__()
        del self.action_space


register("ToySpaceless-v0", Spaceless)
register("ToyActionless-v0", Actionless)

MISFITS = {
    "raises": ("trpo", "ToyUnmade-v0", {}, "'ToyUnmade-v0' cannot be made: RuntimeError: no li"),
    "no observation": ("trpo", "ToySpaceless-v0", {}, "'ToySpaceless-v0' cannot be made: Attrib"),
    "no action": ("trpo", "ToyActionless-v0", {}, "'ToyActionless-v0' cannot be used: Attribute"),
    "vector": (
        "ppo",
        "Acrobot-v1",
        {"vectorization": "vector"},
        "'Acrobot-v1' has no vector environment of its own; vectorization must be list or sync",
    ),
    "dense": (
        "trpo",
        "CartPole-v1",
        {"solver": "dense", "hidden": [200, 200]},
        "20,000 parameters, and the policy on CartPole-v1 with hidden [200, 200] has 41,602",
    ),
    "device": ("ppo", "CartPole-v1", {"policy": "torch", "device": "gpu"}, "device 'gpu' cannot"),
}


@pytest.mark.parametrize(("algo", "task", "settings", "sentence"), MISFITS.values(), ids=MISFITS)
def test_a_misfit_is_one_sentence_of_both_commands(
    algo: str,
    task: str,
    settings: dict[str, object],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    lines = "".join(f"{key} = {value!r}\n" for key, value in settings.items())
    suite = tmp_path / "suite.toml"
    suite.write_text(
        f'tasks = ["{task}"]\nseeds = [0]\nalgorithms = ["{algo}"]\n[settings]\n{lines}'
    )
    flags = [
        part
        for key, value in settings.items()
        for part in (f"--{key}", *map(str, value if isinstance(value, list) else [value]))
    ]
    for arguments in (["matrix", str(suite)], ["run", algo, "--task", task, *flags]):
        assert cli.main([*arguments, "--out", str(out)]) == 2
        error = capsys.readouterr().err
        assert sentence in error and error.count("\n") == 1 and not out.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there")
def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match="device 'cuda' cannot be used"):
        check_tasks([resolve("ppo", ["--task", "CartPole-v1", "--policy=torch", "--device=cuda"])])


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1", "ToyGrid-v0"])
def test_parameters_are_counted_as_the_policy_has_them(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = resolve("trpo", ["--task", task, "--solver", "dense"])
    track = make_track(resolved, resolved.recipe.build())
    size = track.policy.parameters.size
    track.close()
    limit = "redline.algorithms.core.curvature.MAX_DENSE_PARAMETERS"
    monkeypatch.setattr(limit, size)
    check_tasks([resolved])
    monkeypatch.setattr(limit, size - 1)
    with pytest.raises(BadInput, match="solver dense takes at most"):
        check_tasks([resolved])
