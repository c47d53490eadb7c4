"""The command as a user starts it, and environments that misbehave."""

import os
import subprocess
import sys
from pathlib import Path

from redline.benchmark import threads

REDLINE = Path(sys.executable).with_name("redline")

# A user's own module: every environment pays 1 a step for ten steps unless it misbehaves.
MODULE = """
import json, os, sys
import gymnasium as gym
import numpy as np
import threadpoolctl


class Base(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.evaluates = seed in range(10_000_000, 10_000_100)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), self.reward(), False, False, {}

    def reward(self):
        return 1.0


class Boom(Base):
    def reward(self):
        if self.t == 5:
            raise ValueError("tank empty 17")
        return 1.0


class LateBoom(Boom):
    def reward(self):
        return 1.0 if self.evaluates else super().reward()


class Nan(Base):
    def reward(self):
        return float("nan") if self.t == 3 and not self.evaluates else 1.0


class Dies(Base):
    def reward(self):
        os._exit(7)


class Killed(Base):
    def reward(self):
        os.kill(os.getpid(), 9)


class Exits(Base):
    def reward(self):
        sys.exit("leaving")


class Threads(Base):
    def __init__(self):
        import torch

        pools = {pool["prefix"]: pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
        with open("threads.json", "w") as file:
            json.dump({**pools, "torch": torch.get_num_threads()}, file)


class DictSpace(Base):
    observation_space = gym.spaces.Dict({"x": gym.spaces.Discrete(2)})

    def reset(self, *, seed=None, options=None):
        raise AssertionError("a task that is not supported is never played")


for kind in (Boom, LateBoom, Nan, Dies, Killed, Exits, Threads, DictSpace):
    gym.register(f"{kind.__name__}-v0", kind, max_episode_steps=10)
"""


def make_home(folder: Path) -> Path:
    """A folder to work in, with the module above as `mine/envs.py`."""
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "envs.py").write_text(MODULE)
    return folder


def redline(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, without the thread settings of this process."""
    return subprocess.run(
        [REDLINE, *arguments],
        cwd=folder,
        env=unpinned(),
        capture_output=True,
        text=True,
        timeout=120,
    )


def unpinned() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in threads.VARIABLES}


def start_redline(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the command as the leader of a process group of its own, as a shell does."""
    return subprocess.Popen(
        [REDLINE, *arguments],
        cwd=folder,
        env=unpinned(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
