"""Names and spaces: refused in one sentence, before any rollout."""

import numpy as np
import pytest
import toys  # noqa: F401
from sampling import policy

from redline.algorithms.core.distributions import Categorical
from redline.algorithms.core.gaussians import DiagGaussian
from redline.envs.evaluate import Evaluator
from redline.envs.tasks import EnvironmentFault, TaskError, control_task, task_names


def test_a_task_of_ones_own_is_named_as_it_is_to_be_given():
    with pytest.raises(TaskError, match=r"nearest: toys:ToyDict-v0"):
        control_task("toys:ToyDct-v0")
    with pytest.raises(TaskError, match=r"id \(one of your own is written MODULE:a/Mine-v0\)"):
        control_task("a/Mine-v0")
    with pytest.raises(TaskError, match=r"task 'CartPole-v11': .* id; nearest: CartPole-v1"):
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


def test_an_episode_without_an_end_is_refused(monkeypatch):
    from redline.envs import slots

    monkeypatch.setattr(slots, "MAX_EPISODE", 40)
    evaluator = Evaluator(control_task("ToyLong-v0"), 1, lambda observation: observation)
    with pytest.raises(EnvironmentFault, match=r"within 40 steps; register .*max_episode_steps"):
        evaluator.returns(policy("ToyLong-v0"), deterministic=True)


def test_nan_in_an_evaluation_names_environment_and_step():
    evaluator = Evaluator(control_task("ToyNan-v0"), 2, lambda observation: observation)
    with pytest.raises(EnvironmentFault, match=r"environment 0 of 2 gave the reward nan at step 4"):
        evaluator.returns(policy("ToyNan-v0"), deterministic=True)


def test_a_task_whose_requirements_are_missing_is_one_sentence():
    with pytest.raises(TaskError, match=r"'Pusher-v4' cannot be made: "):
        control_task("Pusher-v4")


def test_a_module_that_fails_is_named(tmp_path, monkeypatch):
    (tmp_path / "broken_task_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TaskError, match=r"'broken_task_module' \(ZeroDivisionError"):
        control_task("broken_task_module:Thing-v0")


def test_mujoco_writes_nothing_beside_the_run(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    control_task("HalfCheetah-v5")
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr().err == ""


def test_a_task_that_cannot_be_made_is_one_line():
    with pytest.raises(TaskError, match=r"^task 'ToyUnmade-v0' cannot be made: RuntimeError: no l"):
        control_task("ToyUnmade-v0")


def test_an_empty_module_is_named():
    with pytest.raises(TaskError, match="cannot import module ''"):
        control_task(":CartPole-v1")
