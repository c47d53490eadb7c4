"""Names and spaces: refused in one sentence, before any rollout."""

import numpy as np
import pytest
import toys  # noqa: F401
from sampling import policy

from redline.algorithms.core.distributions import Categorical, DiagGaussian
from redline.envs.evaluate import Evaluator
from redline.envs.tasks import TaskError, control_task, task_names


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(TaskError, match=r"unknown task 'CartPole-v11'.*nearest: CartPole-v1"):
        control_task("CartPole-v11")


def test_a_missing_module_is_named():
    with pytest.raises(TaskError, match="cannot import module 'no_such_module'"):
        control_task("no_such_module:Thing-v0")


def test_a_dict_space_is_refused_with_what_is_supported():
    with pytest.raises(TaskError, match=r"'ToyDict-v0' has a Dict observation space; supported"):
        control_task("ToyDict-v0")


def test_spaces_choose_the_distribution():
    assert control_task("CartPole-v1").distribution == Categorical(2)
    assert control_task("Pendulum-v1").distribution == DiagGaussian(1)
    assert control_task("ToyGrid-v0").observation_size == 4


def test_gymnasiums_own_tasks_are_listed():
    names = task_names()
    assert "CartPole-v1" in names and "HalfCheetah-v5" in names
    assert not any(name.startswith("Toy") for name in names)


def test_every_evaluation_episode_is_counted_once_and_repeats():
    task = control_task("CartPole-v1")
    evaluator = Evaluator(task, 25, lambda observation: observation)
    actor = policy("CartPole-v1")
    first = evaluator.returns(actor, deterministic=False)
    assert len(first) == 25 and min(first) >= 8
    assert first == evaluator.returns(actor, deterministic=False)
    assert len(set(first)) > 5


def test_an_episodes_return_does_not_depend_on_the_number_of_slots():
    task = control_task("CartPole-v1")
    actor = policy("CartPole-v1")
    long = Evaluator(task, 8, lambda observation: observation).returns(actor, True)
    short = Evaluator(task, 3, lambda observation: observation).returns(actor, True)
    assert long[:3] == short


def test_no_episodes_is_refused():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Evaluator(control_task("CartPole-v1"), 0, np.asarray)
