"""Parts that do not fit together are refused with a sentence that says what to do."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from batches import DISTRIBUTIONS, algorithm, make_policy

from redline.algorithms import registry
from redline.algorithms.core.advantages import RewardToGo
from redline.algorithms.core.aggregation import Aggregate
from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.surrogates import CLIPPED_RATIO, RATIO, SCORE_FUNCTION
from redline.algorithms.core.types import Need, Progress
from redline.algorithms.core.updates import FirstOrder

PARTS: dict[str, Any] = {
    "need": Need(groups=4),
    "advantage": RewardToGo(0.9),
    "surrogate": RATIO,
    "update": FirstOrder(1e-3),
}


def test_a_clip_needs_bounds() -> None:
    with pytest.raises(ValueError, match="clipped_ratio needs clip bounds"):
        Algorithm(**PARTS | {"surrogate": CLIPPED_RATIO})
    assert Algorithm(**PARTS | {"surrogate": CLIPPED_RATIO, "clip": Clip()}).clip == Clip()


def test_a_score_function_has_no_value_to_search_along() -> None:
    with pytest.raises(ValueError, match="no meaningful value; use the ratio surrogate"):
        Algorithm(**PARTS | {"surrogate": SCORE_FUNCTION, "update": algorithm("trpo").update})
    natural = algorithm("npg").update
    assert Algorithm(**PARTS | {"surrogate": SCORE_FUNCTION, "update": natural})


def test_returns_need_whole_episodes() -> None:
    with pytest.raises(ValueError, match="ask for a number of episodes, not of steps"):
        Algorithm(**PARTS | {"need": Need(steps=10)})


def test_a_critic_must_be_there_when_the_advantage_needs_it() -> None:
    policy = make_policy(DISTRIBUTIONS["categorical"])
    with pytest.raises(ValueError, match="needs a critic"):
        Learner(algorithm("ppo"), policy, None, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("need", "message"),
    [
        ({}, "number of steps or a number of episodes"),
        ({"steps": 1, "groups": 1}, "number of steps or a number of episodes"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"groups": 0}, "groups must be at least 1, got 0"),
        ({"groups": 2, "group_size": 0}, "group_size must be at least 1, got 0"),
    ],
)
def test_a_rollout_is_steps_or_episodes(need: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Need(**need)


def test_episodes_asked_for() -> None:
    assert Need(groups=3, group_size=4).episodes == 12
    assert Need(steps=128).episodes == 0


@pytest.mark.parametrize("kind", ["token_mean", "seq_mean", "seq_sum"])
def test_one_part_of_sequences_makes_the_method_one_of_sequences(kind: Any) -> None:
    level = "token" if kind == "token_mean" else "sequence"
    assert Algorithm(**PARTS, aggregate=Aggregate(kind)).level == level
    whole = replace(RATIO, level="sequence")
    assert Algorithm(**PARTS | {"surrogate": whole}, aggregate=Aggregate(kind)).level == "sequence"


@pytest.mark.parametrize("name", registry.names())
def test_every_recipe_asks_for_what_its_advantage_needs(name: str) -> None:
    method = algorithm(name)
    assert method.needs_critic == method.advantage.needs_critic
    assert not (method.advantage.needs_whole_episodes and method.need.steps is not None)


def test_progress() -> None:
    assert Progress(0, 100).fraction == 0.0
    assert Progress(25, 100).fraction == 0.25
    assert Progress(130, 100).fraction == 1.0
    assert Progress(0, 0).fraction == 0.0


def test_the_critic_may_learn_at_another_pace_than_the_policy() -> None:
    alike = registry.get("ppo")(lr=1e-4, epochs=3).build()
    assert (alike.critic.lr, alike.critic.epochs) == (1e-4, 3)
    apart = registry.get("ppo")(lr=1e-4, epochs=3, critic_lr=1e-2, critic_epochs=7).build()
    assert (apart.critic.lr, apart.critic.epochs) == (1e-2, 7)
    assert apart.update == alike.update
