"""What a user should know of settings that are allowed but cannot act, or rarely do well."""

from __future__ import annotations

from collections.abc import Sequence

from redline.algorithms.core.clipping import Clip
from redline.benchmark.arguments import has_preset
from redline.benchmark.baselines import catalogue
from redline.benchmark.config import Resolved
from redline.benchmark.tracks import ControlConfig

# "Groups of 16 are fine at 0.25, groups of 4 unstable at 0.2": one source, single runs.
_SMALL_GROUP = 4
_WIDE = 0.2


def notes(resolved: Resolved) -> list[str]:
    """Sentences, none where all is as usual."""
    if catalogue.is_external(resolved.algo):
        return []
    found = [_idle_clip(resolved), _idle_schedule(resolved), _wide_clip(resolved)]
    return [*filter(None, found), *_fresh_starts(resolved)]


def untuned(methods: Sequence[Resolved]) -> list[str]:
    """Methods that start from a recipe's own defaults, where others have settings for the task."""
    tuned = [one.algo for one in methods if has_preset(one)]
    plain = [one.algo for one in methods if not has_preset(one)]
    if not (tuned and plain):
        return []
    task = methods[0].run.task
    return [
        f"{', '.join(plain)} has no preset for {task}, and {', '.join(tuned)} has: the comparison "
        "is of settings too, unless you give the same ones, or the recipe says "
        'presets_of: ClassVar[str] = "ppo"'
    ]


def steps_per_rollout(resolved: Resolved) -> int | None:
    """Optimiser steps that a rollout is used for; None where its length is not known before."""
    recipe, run = resolved.recipe, resolved.run
    epochs = getattr(recipe, "epochs", 1)
    size = getattr(recipe, "minibatch_size", None)
    if size is None:
        return int(epochs)
    need = recipe.build().need
    if isinstance(run, ControlConfig):
        if need.steps is None:
            return None
        return int(epochs * -(-need.steps * run.n_envs // size))
    return int(epochs * -(-need.episodes // size))


def _clip(resolved: Resolved) -> Clip | None:
    clip = getattr(resolved.recipe, "clip", None)
    return clip if isinstance(clip, Clip) else None


def _idle_clip(resolved: Resolved) -> str:
    """T60: the most common confusion in public trackers."""
    stale = getattr(resolved.run, "stale", 0)
    if _clip(resolved) is None or stale or steps_per_rollout(resolved) != 1:
        return ""
    return (
        "one optimiser step per rollout: the ratio pi/pi_old is 1 when the gradient is taken, so "
        "the clip cannot act; more --epochs or a smaller --minibatch-size let it"
    )


def _idle_schedule(resolved: Resolved) -> str:
    """Rounds without bounds that never come."""
    clip = _clip(resolved)
    if clip is None or "off-for" not in clip.rules or isinstance(resolved.run, ControlConfig):
        return ""
    rollouts = resolved.run.steps // max(1, resolved.recipe.build().need.episodes)
    if rollouts >= clip.off_every - clip.off_rounds + 1:
        return ""
    return (
        f"the budget is {rollouts} rollouts, and the bounds would be off in the last "
        f"{clip.off_rounds} of every {clip.off_every}: a smaller --clip.off-every lets them"
    )


def _wide_clip(resolved: Resolved) -> str:
    """A group size and a clip range chosen by the user outside of the known-good region."""
    clip, size = _clip(resolved), getattr(resolved.recipe, "group_size", None)
    chosen = any(name == "group_size" or name.startswith("clip.") for name in resolved.overrides)
    if clip is None or size is None or not chosen or size > _SMALL_GROUP or clip.high < _WIDE:
        return ""
    return (
        f"groups of {size} with a clip of {clip.high:g}: groups of 4 have been reported unstable "
        "at 0.2, and groups of 16 fine at 0.25; a larger --group-size or a smaller --clip.high is "
        "safer"
    )


def _fresh_starts(resolved: Resolved) -> list[str]:
    if resolved.algo != "dcpo" or resolved.recipe.starts is not None:
        return []
    return [
        "every group starts somewhere new, so dcpo's smooth advantage is that of a first visit, "
        "which is GRPO's; --starts N draws from N starts that come back"
    ]
