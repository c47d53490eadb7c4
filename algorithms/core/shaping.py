"""What is added to rewards and advantages between the rollout and the objective."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from redline.algorithms.core.types import Array, Batch, Namespace, Rollout


@dataclass(frozen=True)
class Shaping:
    """Changes of rewards and advantages; all are off by default.

    Attributes:
        overlong: DAPO's soft penalty (arXiv:2503.14476 Eq. 13): the last `overlong` tokens before
            the cap cost 0 to 1, linearly; a completion of the cap's length or more costs 1.
        entropy: alpha of A + min(alpha H, |A| / kappa) (arXiv:2506.14758 Eq. 7), H the entropy of
            pi_old at the element, at least 0: the sign of A never changes.
        kappa: Above 1.
        min_max: Advantages of a rollout as (A - min) / (max - min), times max - min again: none is
            then negative. The scale cancels out, so what remains of it is a shift by -min A.

    Raises:
        ValueError: A value is out of its range.
    """

    overlong: int | None = None
    entropy: float = 0.0
    kappa: float = 2.0
    min_max: bool = False

    def __post_init__(self) -> None:
        if self.overlong is not None and self.overlong < 1:
            raise ValueError(f"shaping.overlong must be at least 1, got {self.overlong}")
        if not self.entropy >= 0.0:
            raise ValueError(f"shaping.entropy must be at least 0, got {self.entropy:g}")
        if not self.kappa > 1.0:
            raise ValueError(
                f"shaping.kappa must be above 1, or the sign of A could change, got {self.kappa:g}"
            )

    def rewards(self, rollout: Rollout) -> Rollout:
        """The rollout with the penalty on long episodes in the reward of their last elements.

        Raises:
            ValueError: Episodes of this rollout have no cap, or a shorter one than the penalty.
        """
        if self.overlong is None:
            return rollout
        if rollout.longest is None:
            raise ValueError(
                "the penalty on overlong answers (shaping.overlong) is for language tasks: an "
                "episode on control is not an answer that could have been shorter"
            )
        if self.overlong >= rollout.longest:
            raise ValueError(
                f"shaping.overlong must be below the cap of a completion, which is "
                f"{rollout.longest}, got {self.overlong}"
            )
        length = np.bincount(rollout.episode_id[rollout.mask])
        penalty = overlong_penalty(length, longest=rollout.longest, buffer=self.overlong)
        last = rollout.terminated | rollout.truncated
        added = np.where(last, penalty[rollout.episode_id], 0.0)
        metrics = rollout.metrics | {"train/overlong_penalty": float(penalty.mean())}
        return replace(rollout, reward=rollout.reward + added, metrics=metrics)

    def advantages(self, advantage: Array, mask: Array) -> Array:
        """What is done once per rollout, before any standardisation: [B, T]."""
        if not self.min_max or not mask.any():
            return advantage
        return np.where(mask, advantage - advantage[mask].min(), 0.0)

    def bonus(self, xp: Namespace, batch: Batch) -> Batch:
        """What is done once per optimiser step, after every standardisation."""
        if not self.entropy:
            return batch
        assert batch.entropy is not None
        bonus = entropy_bonus(
            xp,
            advantage=batch.advantage,
            entropy=batch.entropy,
            alpha=self.entropy,
            kappa=self.kappa,
        )
        return batch.with_advantage(batch.advantage + bonus)


def overlong_penalty(length: Array, *, longest: int, buffer: int) -> Array:
    """0 up to longest - buffer, then (longest - buffer - |y|) / buffer, at least -1.

    Args:
        length: [E] elements of every episode.
        longest: The cap.
        buffer: Elements before it that cost.
    """
    return np.clip((longest - buffer - length) / buffer, -1.0, 0.0)


def entropy_bonus(
    xp: Namespace, *, advantage: Array, entropy: Array, alpha: float, kappa: float
) -> Array:
    """min(alpha max(H, 0), |A| / kappa): a differential entropy may be negative."""
    positive = xp.maximum(entropy, xp.zeros_like(entropy))
    return xp.minimum(alpha * positive, abs(advantage) / kappa)
