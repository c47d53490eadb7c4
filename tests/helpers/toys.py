"""Tiny environments whose every number is known; registered under Toy* when this is imported."""

from typing import Any

import gymnasium as gym
import numpy as np


class Counter(gym.Env[Any, Any]):
    """Reward 1 a step; the observation is (seed-dependent start, step); ends after `length`."""

    def __init__(self, length: int = 3, ends: bool = True) -> None:
        self.length, self.ends = length, ends
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def _observation(self) -> Any:
        return np.array([self.start, self.step_count], dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.start = float(self.np_random.random())
        self.step_count = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_count += 1
        return self._observation(), self.reward(), self.ended(), False, {}

    def reward(self) -> float:
        return 1.0

    def ended(self) -> bool:
        return self.ends and self.step_count >= self.length


class Boom(Counter):
    """Raises at its fifth step when it is the second environment that was made."""

    made = 0

    def __init__(self) -> None:
        super().__init__(length=100)
        self.number = Boom.made
        Boom.made += 1

    def reward(self) -> float:
        if self.step_count == 5 and self.number % 2 == 1:
            raise ValueError("tank empty 17")
        return 1.0


class NanReward(Counter):
    """A reward that is not a number at the fourth step."""

    def __init__(self) -> None:
        super().__init__(length=10)

    def reward(self) -> float:
        return float("nan") if self.step_count == 4 else 1.0


class DictSpace(Counter):
    """An observation space that is not supported."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Dict({"a": gym.spaces.Box(0, 1, (1,))})


class Echo(gym.Env[Any, Any]):
    """Box actions in [-1, 1]; remembers what it received."""

    received: list[Any]

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.received = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.received.append(np.array(action))
        return np.zeros(1), float(action[0]), False, False, {}


class Grid(Counter):
    """A discrete observation, and a discrete action that starts at 1."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Discrete(4)
        self.action_space = gym.spaces.Discrete(3, start=1)

    def _observation(self) -> Any:
        return min(self.step_count, 3)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in (1, 2, 3)
        return super().step(action)


gym.register("ToyEnds-v0", Counter)
gym.register("ToyCut-v0", Counter, max_episode_steps=3, kwargs={"ends": False})
gym.register("ToyLong-v0", Counter, kwargs={"length": 50})
gym.register("ToyBoom-v0", Boom)
gym.register("ToyNan-v0", NanReward)
gym.register("ToyDict-v0", DictSpace)
gym.register("ToyEcho-v0", Echo, max_episode_steps=5)
gym.register("ToyGrid-v0", Grid)


class Misshapen(Counter):
    """Observations shorter than the space says."""

    def _observation(self) -> Any:
        return np.zeros(1, dtype=np.float32)


class Sticky(Counter):
    """Cannot be closed."""

    def close(self) -> None:
        raise RuntimeError("stuck")


class Unmade(Counter):
    """Cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no\nlicence")


gym.register("ToyMisshapen-v0", Misshapen)
gym.register("ToySticky-v0", Sticky)
gym.register("ToyUnmade-v0", Unmade)
