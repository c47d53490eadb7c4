"""Running normalisation of observations and rewards, owned by the sampler."""

from __future__ import annotations

import numpy as np

from redline.algorithms.core.moments import RunningMoments
from redline.algorithms.core.types import Array

# The range that VecNormalize and CleanRL clip to.
CLIP = 10.0


class ObservationNormalizer:
    """(x - mean) / std clipped to +-10.

    Statistics move only in `update`, once per rollout, so that one rollout is seen in one scale and
    evaluation never changes them.
    """

    def __init__(self, size: int) -> None:
        self.moments = RunningMoments((size,))

    def __call__(self, observation: Array) -> Array:
        """Normalised observations in float32; as they are before the first update."""
        if self.moments.count == 0:
            return observation
        scaled = (observation - self.moments.mean) / np.sqrt(self.moments.variance + 1e-8)
        return np.minimum(np.maximum(scaled, -CLIP), CLIP).astype(np.float32)

    def update(self, observation: Array) -> None:
        """Add raw observations [N, D]."""
        self.moments.update(observation)


class RewardNormalizer:
    """r / std of the running discounted return, never centred.

    The accumulator R_t = gamma R_{t-1} + r_t starts anew after an episode's end, terminated and
    truncated alike (Stable-Baselines3 does both; Gymnasium's wrapper only one).

    Args:
        slots: Rows of the rollouts.
        gamma: Discount of the return whose spread is measured.
    """

    def __init__(self, slots: int, gamma: float) -> None:
        self.gamma = gamma
        self.running = np.zeros(slots)
        self.moments = RunningMoments(())

    def accumulate(self, *, reward: Array, mask: Array, end: Array) -> Array:
        """R_t for [B, T] rewards; masked rows (resets) are skipped and not counted."""
        result = np.zeros(reward.shape)
        for t in range(reward.shape[1]):
            counts = mask[:, t]
            self.running[counts] = self.gamma * self.running[counts] + reward[counts, t]
            result[:, t] = self.running
            self.running[counts & end[:, t]] = 0.0
        return result

    def __call__(self, *, reward: Array, mask: Array, end: Array) -> Array:
        """Scaled rewards [B, T], after adding this rollout to the statistics."""
        self.moments.update(self.accumulate(reward=reward, mask=mask, end=end)[mask])
        scaled = reward / np.sqrt(self.moments.variance + 1e-8)
        return np.minimum(np.maximum(scaled, -CLIP), CLIP)
