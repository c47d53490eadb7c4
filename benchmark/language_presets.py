"""Settings on language tasks, chosen for the model that ships; see `presets` for control tasks.

Every method samples 256 completions between updates, so that an update costs the same number of
completions whatever the method, and counts rewards undiscounted: they come with the last token.
Learning rates are starting points in the order of magnitude that leaves the policy near the one
that sampled; they are not the outcome of a search.
"""

from __future__ import annotations

from typing import Any

from redline.llm_track.settings import LanguageSettings

_COMPLETIONS = 256
# Every update of a rollout's four uses other completions.
_QUARTERS = {"epochs": 1, "minibatch_size": _COMPLETIONS // 4}
_GROUPS = {"groups": _COMPLETIONS // 8, "group_size": 8, "lr_decay": False}
_FAMILY = _GROUPS | _QUARTERS | {"lr": 1e-4}
_CRITIC = {"episodes": _COMPLETIONS, "gamma": 1.0}
# The value head is small and new, the policy is neither.
_PASSES = {"critic_lr": 1e-3, "critic_epochs": 10}
_FIRST_ORDER = _CRITIC | _QUARTERS | _PASSES | {"lr": 1e-4, "gae_lambda": 1.0}
_HEAD = _PASSES | {"critic_minibatch_size": _COMPLETIONS // 4}
# Without a discount the bounds of conservative policy iteration need the longest episode.
_HORIZON = {"horizon": LanguageSettings().max_completion}
_NATURAL = (
    _CRITIC
    | _HEAD
    | {
        "gae_lambda": 1.0,
        "fisher_rows": 64,
        "cg_iterations": 4,
        "damping": 0.1,
        "delta": 0.005,
    }
)

_LANGUAGE: dict[str, dict[str, Any]] = {
    "reinforce": {"episodes": _COMPLETIONS, "gamma": 1.0, "lr": 2e-4, "lr_decay": False},
    "reinforce_group": _GROUPS | {"lr": 2e-4},
    "reinforce_baseline": _CRITIC | _HEAD | {"lr": 2e-4, "lr_decay": False, "gae_lambda": 1.0},
    "npg": _NATURAL,
    "trpo": _NATURAL,
    "ppo": _FIRST_ORDER,
    "ppo_kl": _FIRST_ORDER,
    "cpi": _FIRST_ORDER | _HORIZON | {"alpha": "line_search"},
    "cpi_penalty": _FIRST_ORDER | _HORIZON | {"penalty": 1.0, "kl_over": "mean"},
    "grpo": _FAMILY,
    "dapo": _FAMILY | {"shaping.overlong": 16},
    "dr_grpo": _FAMILY | {"length": LanguageSettings().max_completion},
    "dcpo": _FAMILY,
    "gspo": _FAMILY,
    "gspo_token": _FAMILY,
    "gmpo": _FAMILY,
    "cispo": _FAMILY,
    "sapo": _FAMILY,
    "entropy_advantage": _FAMILY,
    "rloo": _FAMILY,
    "reinforce_plus_plus": _FAMILY,
}


def preset(algo: str) -> dict[str, Any]:
    """Overrides for an algorithm; empty where the recipe's own defaults apply."""
    return dict(_LANGUAGE.get(algo, {}))
