"""Time and memory of single updates: the rollout, the methods, what is counted."""

import json

import numpy as np
import pytest

from redline.algorithms import registry
from redline.algorithms.core import curvature
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.types import Progress
from redline.benchmark import cli
from redline.benchmark.bench import update
from redline.envs.tasks import control_task

UPDATE_KEYS = {
    "name",
    "seconds_median",
    "seconds_min",
    "seconds_max",
    "memory_mb",
    "repeats",
}


@pytest.fixture(scope="module")
def small():
    """Networks of one layer and a rollout of about 256 elements."""
    networks = update.Networks(control_task("CartPole-v1"), hidden=(64,))
    return networks, update.rollout(networks.task, networks.policy(), elements=256)


def test_the_rollout_is_whole_episodes_in_groups():
    networks = update.Networks(control_task("HalfCheetah-v5"))
    on = update.rollout(networks.task, networks.policy())
    assert on.mask.shape == (16, 128) and on.mask.all() and on.steps == update.ELEMENTS == 2048
    assert on.whole_episodes and on.truncated.sum() == 16
    assert np.bincount(on.group_of_episode).tolist() == [4] * 4
    algorithm = update.resolved("ppo", "HalfCheetah-v5").recipe.build()
    learner = Learner(algorithm, networks.policy(), networks.critic(), np.random.default_rng(0))
    assert learner.update(on, Progress(0, 1))["train/n_updates"] == 320


def test_a_task_that_ends_early_plays_more_episodes(small):
    _, on = small
    assert 150 < on.steps < 500 and len(on.episode_return) > 4
    assert on.whole_episodes and set(np.bincount(on.group_of_episode)) == {4}


@pytest.mark.parametrize("name", registry.names())
def test_every_method_learns_from_the_rollout(name, small):
    found = update.measure(name, *small, repeats=1)
    assert set(found.row("CartPole-v1")) == UPDATE_KEYS
    assert found.seconds[0] > 0 and found.memory_mb > 0


def test_a_dense_fisher_matrix_takes_more_memory_and_time(small):
    dense, cg = (update.measure(name, *small, repeats=2) for name in ("trpo--solver=dense", "trpo"))
    size = small[0].policy().parameters.size
    assert dense.memory_mb > cg.memory_mb + 0.5 * size * size * 8 / 2**20
    assert dense.median > cg.median
    assert (len(dense.seconds), len(cg.seconds)) == (1, 2)


def test_every_repeat_starts_from_the_same_state(small, monkeypatch):
    seen = []

    def seconds(learner, on):
        before = learner.policy.snapshot(), learner.critic.snapshot()
        learner.update(on, Progress(0, on.steps))
        seen.append((*before, learner.policy.snapshot(), learner.critic.snapshot()))
        return 1.0

    monkeypatch.setattr(update, "_seconds", seconds)
    update.measure("ppo", *small, repeats=2)
    assert len(seen) == 3
    for state in zip(*seen, strict=True):
        assert all(np.array_equal(state[0], other) for other in state)
    assert not np.array_equal(seen[0][0], seen[0][2])


def test_update_end_to_end_says_what_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(curvature, "MAX_DENSE_PARAMETERS", 10)
    table = tmp_path / "update.json"
    only = ["--only", "reinforce", "ppo", "npg--solver=dense"]
    arguments = ["--task", "CartPole-v1", "--repeats", "1", "--json", str(table), *only]
    assert cli.main(["bench", "update", *arguments]) == 0
    rows = json.loads(table.read_text())
    assert {row["name"] for row in rows} == {
        "update/CartPole-v1/ppo",
        "update/CartPole-v1/reinforce",
    }
    assert all(set(row) == UPDATE_KEYS for row in rows)
    shown = capsys.readouterr().out
    assert "npg--solver=dense: refused, solver dense takes at most 10 parameters" in shown
    assert "x ppo" in shown and "MiB: most memory" in shown


def test_dense_is_measured_beside_every_solver():
    found = update.names()
    assert [name for name in found if not name.endswith(update.DENSE)] == registry.names()
    assert {"npg--solver=dense", "trpo--solver=dense"} <= set(found)
