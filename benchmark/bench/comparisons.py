"""The rows of `redline bench control`: settings at which both libraries train."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from redline.benchmark.config import Resolved, replace_fields
from redline.benchmark.errors import unknown
from redline.benchmark.tracks import ControlConfig


@dataclass(frozen=True)
class Comparison:
    """One row.

    Attributes:
        algo: Name of the recipe.
        task: Gymnasium id.
        variant: Where the settings come from.
        steps: Environment steps of either side, enough for both to learn.
        n_envs: Environments side by side.
        settings: Every setting of the recipe, so that no default or preset of ours decides.
    """

    algo: str
    task: str
    variant: str
    steps: int
    n_envs: int
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """<algo>/<task>/<variant>."""
        return f"{self.algo}/{self.task}/{self.variant}"

    def resolved(self, seed: int, steps: int | None = None) -> Resolved:
        """The run of one side.

        Args:
            seed: Of the run.
            steps: Environment steps; None: the row's own.
        """
        from redline.algorithms import registry

        run = ControlConfig(
            task=self.task,
            seed=seed,
            steps=steps or self.steps,
            n_envs=self.n_envs,
            policy="mlp",
            evals=0,
            eval_episodes=1,
            **NETWORKS,
        )
        return Resolved(self.algo, replace_fields(registry.get(self.algo)(), self.settings), run)


# What "MlpPolicy" stands for.
NETWORKS: dict[str, Any] = {
    "hidden": (64, 64),
    "activation": "tanh",
    "log_std_init": 0.0,
}

_SHARED: dict[str, Any] = {
    "n_steps": 2048,
    "episodes": None,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "standardise_advantage": True,
    "entropy_coef": 0.0,
    "scale_returns": False,
    "critic_every": 1,
    "shaping.overlong": None,
    "shaping.entropy": 0.0,
    "shaping.kappa": 2.0,
    "shaping.min_max": False,
}

_PPO: dict[str, Any] = _SHARED | {
    "clip.low": 0.2,
    "clip.high": 0.2,
    "clip.schedule": "fixed",
    "clip.low_end": None,
    "clip.high_end": None,
    "clip.floor": 0.0,
    "clip.ceiling": None,
    "clip.hold": 0.4,
    "clip.until": 0.8,
    "clip.gain": 1.0,
    "clip.window": 1000,
    "clip.off_every": 10,
    "clip.off_rounds": 1,
    "ratio.truncate": None,
    "ratio.dual_clip": None,
    "kl_coef": 0.0,
    "kl_estimator": "k3",
    "lr": 3e-4,
    "lr_decay": False,
    "epochs": 10,
    "minibatch_size": 64,
    "target_kl": None,
    "max_grad_norm": 0.5,
    "critic_lr": None,
    "critic_epochs": None,
    "recompute_advantage": False,
}

# What rl-baselines3-zoo publishes for PPO on CartPole-v1.
_ZOO: dict[str, Any] = _PPO | {
    "n_steps": 32,
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "clip.schedule": "linear",
    "lr": 1e-3,
    "lr_decay": True,
    "epochs": 20,
    "minibatch_size": 256,
}

_TRPO: dict[str, Any] = _SHARED | {
    "delta": 0.01,
    "delta_decay": False,
    "solver": "cg",
    "cg_iterations": 15,
    "damping": 0.1,
    "fisher_rows": None,
    "kl_convention": "sb3",
    "critic_lr": 1e-3,
    "critic_lr_decay": False,
    "critic_epochs": 10,
    "critic_minibatch_size": 128,
    "backtrack": 0.8,
    "max_backtracks": 10,
}

_CARTPOLE, _CHEETAH = "CartPole-v1", "HalfCheetah-v5"

ROWS = (
    Comparison("ppo", _CARTPOLE, "zoo", 50_000, 8, _ZOO),
    Comparison("ppo", _CARTPOLE, "sb3-default", 50_000, 1, _PPO),
    Comparison("trpo", _CARTPOLE, "contrib-default", 50_000, 1, _TRPO),
    Comparison("ppo", _CHEETAH, "sb3-default", 40_960, 1, _PPO),
    Comparison("trpo", _CHEETAH, "contrib-default", 40_960, 1, _TRPO),
)


def chosen(names: Iterable[str]) -> list[Comparison]:
    """The rows called `names`, in the order of the table; all of them where there are none.

    Raises:
        BadInput: No row is called so.
    """
    wanted = list(names)
    known = [row.name for row in ROWS]
    for name in wanted:
        if name not in known:
            raise unknown("row", name, known)
    return [row for row in ROWS if not wanted or row.name in wanted]
