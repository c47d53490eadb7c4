"""Presets: every name in them is a setting, and a task's own needs come last."""

from itertools import product

import pytest

from redline.algorithms import registry
from redline.benchmark.arguments import resolve
from redline.benchmark.presets import FAMILIES, family, preset

TASKS = {"cartpole": "CartPole-v1", "mujoco": "Hopper-v5"}


@pytest.mark.parametrize("name", registry.names())
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_preset_resolves(kind: str, name: str) -> None:
    task = TASKS[kind]
    assert family(task) == kind
    resolved = resolve(name, ["--task", task])
    assert not resolved.overrides
    for key, value in preset(name, task).items():
        holder = resolved.recipe
        *path, last = key.split(".")
        for part in path:
            holder = getattr(holder, part)
        assert value in (getattr(holder, last, None), getattr(resolved.run, last, None))


def test_families_are_told_by_the_task() -> None:
    assert family("pkg.module:CartPole-v1") == "cartpole"
    assert family("HumanoidStandup-v5") == "mujoco"
    assert family("Acrobot-v1") is None and preset("ppo", "Acrobot-v1") == {}
    assert preset("no-such-method", "CartPole-v1") == {}


def test_what_a_task_needs_besides() -> None:
    assert resolve("grpo", ["--task", "Swimmer-v5"]).recipe.gamma == 0.9999
    assert resolve("grpo", ["--task", "Hopper-v5"]).recipe.gamma == 0.99
    assert resolve("reinforce", ["--task", "Hopper-v5"]).recipe.lr == 1e-3
    for task in ("HalfCheetah-v5", "Hopper-v5"):
        many = resolve("ppo", ["--task", task])
        assert (many.run.n_envs, many.recipe.n_steps) == (64, 32)
    for algo in ("trpo", "npg"):
        hopper = resolve(algo, ["--task", "Hopper-v5"]).recipe
        assert (hopper.n_steps, hopper.delta, hopper.delta_decay) == (256, 0.1, True)
        walker = resolve(algo, ["--task", "Walker2d-v5"])
        assert (walker.run.log_std_init, walker.recipe.delta) == (-1.0, 0.05)
        swimmer = resolve(algo, ["--task", "Swimmer-v5"])
        assert (swimmer.run.n_envs, swimmer.run.log_std_init) == (2, 0.0)
        assert (swimmer.recipe.n_steps, swimmer.recipe.gae_lambda) == (1024, 0.99)
    steady, usual = (
        resolve("trpo", ["--task", task]).recipe for task in ("InvertedPendulum-v5", "Reacher-v5")
    )
    assert (steady.n_steps, steady.delta) == (512, 0.01)
    for algo, poles in product(("ppo", "grpo"), ("", "Double")):
        task = f"Inverted{poles}Pendulum-v5"
        assert not resolve(algo, ["--task", task]).run.normalize_observation
    assert resolve("ppo", ["--task", "Hopper-v5"]).run.normalize_observation
    ant = [resolve(algo, ["--task", "Ant-v5"]) for algo in ("trpo", "ppo")]
    assert [(x.run.normalize_observation, x.run.log_std_init) for x in ant] == [(False, -1.0)] * 2
    assert ant[1].recipe.lr == 1e-4 and resolve("ppo", ["--task", "Hopper-v5"]).recipe.lr == 3e-4
    assert (usual.n_steps, usual.delta) == (128, 0.02)
    assert resolve("npg", ["--task", "InvertedPendulum-v5"]).recipe.step_size == 0.1
    assert resolve("npg", ["--task", "Hopper-v5"]).recipe.step_size is None
    assert resolve("ppo", ["--task", "InvertedPendulum-v5"]).recipe.n_steps == 128
    assert resolve("ppo", ["--task", "InvertedDoublePendulum-v5"]).recipe.n_steps == 256
