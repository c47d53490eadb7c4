"""Recipes whose update takes milliseconds."""

import dataclasses
from typing import Any

from redline.algorithms import registry
from redline.algorithms.core.algorithm import Algorithm

_SIZES = {
    "n_steps": 16,
    "groups": 2,
    "group_size": 3,
    "epochs": 2,
    "minibatch_size": 8,
    "critic_epochs": 2,
    "critic_minibatch_size": 8,
    # The bounds of conservative policy iteration allow steps that are lost in rounding.
    "alpha": "line_search",
    "penalty": 1.0,
    "kl_over": "mean",
}


def small(name: str, **settings: Any) -> Algorithm:
    """The recipe `name` on few elements; `settings` that it does not have are left out."""
    recipe = registry.get(name)()
    fields = {field.name for field in dataclasses.fields(recipe)}
    chosen = {key: value for key, value in (_SIZES | settings).items() if key in fields}
    built: Algorithm = dataclasses.replace(recipe, **chosen).build()
    return built
