"""A film of a trained policy: its pictures, its return, and what stands in its way."""

import ctypes.util
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio.v3 as iio
import numpy as np
import pytest
from closeness import close
from command import redline as redline_command

import redline.benchmark
from redline.benchmark import cli, video

SIZE = (32, 48)
SEED = 7


class Drawn(gym.Env[Any, Any]):
    """Ends after 5 to 14 steps; the picture's grey is ten times the number of the step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2, 1), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.step_count, self.length = 0, int(self.np_random.integers(5, 15))
        self.state = self.np_random.random((2, 1)).astype(np.float32)
        return self.state, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_count += 1
        self.state = self.state + np.float32(action[0])
        return self.state, float(self.state.sum()), self.step_count >= self.length, False, {}

    def render(self) -> Any:
        return np.full((*SIZE, 3), 10 * self.step_count, np.uint8)


class Undrawn(Drawn):
    """Has no pictures."""

    metadata = {"render_modes": ["human"]}  # noqa: RUF012


class NoRenderer(Drawn):
    """Pictures that need a library which is not there."""

    def render(self) -> Any:
        raise ImportError("no library\nfor pictures")


class NoPicture(Drawn):
    """Something else than a picture."""

    def render(self) -> Any:
        return "a pole"


for kind in (Drawn, Undrawn, NoRenderer, NoPicture):
    gym.register(f"Toy{kind.__name__}-v0", kind)


def trained(folder: Path, task: str) -> Path:
    few = ["--steps", "200", "--n-envs", "2", "--n-steps", "100", "--minibatch-size", "50"]
    few += ["--evals", "1", "--eval-episodes", "2", "--hidden", "8", "--no-tensorboard"]
    normal = ["--normalize-observation", "--out", str(folder)]
    assert cli.main(["run", "ppo", "--task", task, *few, *normal]) == 0
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("watch") / "run", "ToyDrawn-v0")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one sentence with which `redline watch` refuses."""
    assert cli.main(["watch", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("redline: ") and error.count("\n") == 1
    return error


@pytest.mark.parametrize("stochastic", [False, True])
def test_the_film_shows_every_state_of_the_episode_that_an_evaluation_plays(
    stochastic: bool, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "films" / "one.mp4"
    arguments = ["--seed", str(SEED), "--out", str(out), *["--stochastic"] * stochastic]
    assert cli.main(["watch", str(run), *arguments]) == 0
    shown = capsys.readouterr()
    with redline.benchmark.load(run, 1) as policy:
        (expected,) = policy.returns(not stochastic, SEED)
    assert f"episode from seed {SEED}: return {expected:.8g}\n" in shown.out
    assert shown.out.endswith(f"film: {out}\n") and shown.err == ""
    pictures = iio.imread(out, plugin="FFMPEG")
    env = Drawn()
    env.reset(seed=SEED)
    assert pictures.shape == (env.length + 1, *SIZE, 3)
    grey = pictures.mean(axis=(1, 2, 3))
    assert np.abs(grey - 10.0 * np.arange(env.length + 1)).max() < 4.0  # video is lossy
    assert iio.immeta(out, plugin="FFMPEG")["fps"] == 5.0
    assert list(out.parent.iterdir()) == [out]


def test_episodes_follow_one_another_in_the_runs_folder(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["watch", str(run), "--episodes", "3", "--fps", "12.5"]) == 0
    shown = capsys.readouterr().out
    found = re.findall(r"seed (\d+): return (.*)", shown)
    assert [int(seed) for seed, _ in found] == [10_000_000 + k for k in range(3)]
    with redline.benchmark.load(run, 3) as policy:
        close([float(total) for _, total in found], policy.returns(), rtol=1e-5)
    lengths = []
    for k in range(3):
        env = Drawn()
        env.reset(seed=10_000_000 + k)
        lengths.append(env.length)
    out = run / "episode.mp4"
    assert len(iio.imread(out, plugin="FFMPEG")) == sum(lengths) + 3
    assert iio.immeta(out, plugin="FFMPEG")["fps"] == 12.5


def test_odd_sizes_become_even(tmp_path: Path) -> None:
    path = tmp_path / "odd.mp4"
    with video.film(path, 10.0) as send:
        for _ in range(3):
            send(np.zeros((33, 47, 3), np.uint8)[::-1])
    assert iio.imread(path, plugin="FFMPEG").shape == (3, 34, 48, 3)


def test_a_film_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), video.film(tmp_path / "x.mp4", 10.0) as send:
        send(np.zeros((16, 16, 3), np.uint8))
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_a_film_that_is_not_whole_is_no_film(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What count_frames_and_secs finds where ffmpeg met a full disk.
    monkeypatch.setattr("imageio_ffmpeg.count_frames_and_secs", lambda path: (1, 0.1))
    with (
        pytest.raises(OSError, match="could not be completed"),
        video.film(tmp_path / "x.mp4", 10.0) as send,
    ):
        send(np.zeros((16, 16, 3), np.uint8))
        send(np.zeros((16, 16, 3), np.uint8))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("ToyUndrawn-v0", "cannot be drawn: its render modes are human, not rgb_array"),
        ("ToyNoRenderer-v0", "cannot be drawn here: ImportError: no library for pictures"),
        ("ToyNoPicture-v0", "cannot be drawn: its render() gave str, no picture"),
    ],
)
def test_a_task_that_cannot_be_drawn(
    task: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained(tmp_path / "run", task)
    capsys.readouterr()
    before = sorted(folder.iterdir())
    assert f"redline: task {task!r} {reason}" in refused(capsys, str(folder))
    assert sorted(folder.iterdir()) == before


def test_what_is_wrong_is_said_before_any_work(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(run)
    assert "say which run: redline watch RUN" in refused(capsys)
    assert "episodes must be at least 1" in refused(capsys, where, "--episodes", "0")
    assert "seed must be at least 0" in refused(capsys, where, "--seed", "-1")
    assert "fps must be a number above 0" in refused(capsys, where, "--fps", "0")
    assert "fps must be a number above 0" in refused(capsys, where, "--fps", "inf")
    assert "ends in .mp4" in refused(capsys, where, "--out", str(tmp_path / "x.gif"))
    (tmp_path / "folder.mp4").mkdir()
    assert "ends in .mp4" in refused(capsys, where, "--out", str(tmp_path / "folder.mp4"))
    (tmp_path / "file").touch()
    inside = str(tmp_path / "file" / "x.mp4")
    assert "cannot write to" in refused(capsys, where, "--out", inside)
    assert "holds no run" in refused(capsys, str(tmp_path))
    monkeypatch.setattr(video, "find_spec", lambda name: None)
    assert "pip install 'redline-rl[video]'" in refused(capsys, where)


def test_another_seed_evaluates_other_episodes(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["eval", str(run), "--seed", str(SEED), "--episodes", "2"]) == 0
    shown = capsys.readouterr().out
    with redline.benchmark.load(run, 2) as policy:
        values = policy.returns(True, SEED)
        assert f"deterministic  mean {np.mean(values):.8g} " in shown
        assert policy.returns(True, SEED + 1)[0] == values[1]
        assert values != policy.returns()


SHORT = """
import gymnasium as gym

cheetah = "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv"
gym.register("Short-v0", cheetah, max_episode_steps=4)
"""


@pytest.mark.skipif(ctypes.util.find_library("EGL") is None, reason="MuJoCo draws with libEGL")
def test_mujoco_is_drawn_without_a_display(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "short.py").write_text(SHORT)
    few = ["--steps", "64", "--n-envs", "1", "--n-steps", "64", "--minibatch-size", "64"]
    few += ["--evals", "1", "--eval-episodes", "1", "--no-tensorboard", "--out", "run"]
    assert redline_command(tmp_path, "run", "ppo", "--task", "short:Short-v0", *few).returncode == 0
    done = redline_command(tmp_path, "watch", "run")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    pictures = iio.imread(tmp_path / "run" / "episode.mp4", plugin="FFMPEG")
    assert pictures.shape == (5, 480, 480, 3)
    assert pictures.std() > 10.0
    assert not (tmp_path / "MUJOCO_LOG.TXT").exists()
    monkeypatch.setenv("MUJOCO_GL", "none of these")
    done = redline_command(tmp_path, "watch", "run")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "(MUJOCO_GL is none of these; egl needs libegl1" in done.stderr


def test_cartpole_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("pygame", reason="of the extra video")
    few = ["--steps", "64", "--n-envs", "1", "--n-steps", "64", "--minibatch-size", "64"]
    few += ["--evals", "1", "--eval-episodes", "1", "--no-tensorboard", "--out", "run"]
    assert redline_command(tmp_path, "run", "ppo", "--task", "CartPole-v1", *few).returncode == 0
    done = redline_command(tmp_path, "watch", "run", "--seed", "1")
    assert done.returncode == 0 and "pygame" not in done.stdout, done.stderr
    assert iio.imread(tmp_path / "run" / "episode.mp4", plugin="FFMPEG").shape[1:] == (400, 600, 3)
