"""Every number that a rule compares with, in one table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """What the rules of the doctor compare with.

    Attributes:
        updates: A run of fewer updates is not judged.
        lasting: A finding holds for this share of the updates in a row, unless its rule says
            otherwise.
        bursts: Updates that make a burst more than an accident.
        gain: A run whose evaluation has not grown by this share of its start has stalled.
        clip_inert: T50, share of elements whose gradient the clip removes.
        outside_low: T51, share of ratios outside [0.8, 1.2] below which updates are timid.
        outside_high: T51, share above which they are bold.
        outside_broken: T51, share above which the update is broken.
        ratio_std_high: T52, with a loss that jumps up and down.
        ratio_std_low: T52, with a loss that swings slowly.
        mixed: T53, share of groups that are not all paid the same.
        ratio_max: T54, largest ratio of a burst.
        clip_burst: T54, share removed by the clip in a burst.
        negative: T55, share of negative advantages that were not centred.
        advantage_mean: T55, mean advantage, in standard deviations, below which it is negative.
        advantage_variance: T55, variance of advantages.
        p90_high: T56, 90th percentile of the ratio.
        p90_low: T56, the same from below.
        value_growth: T57, the critic's squared error, in multiples of its start.
        explained: T57, explained variance below which a critic is of no use.
        foreign: T58, share of ratios outside [0.8, 1.2] of data that is not the policy's.
        mismatch: T58, the same before an update whose rollouts are fresh.
        reward_rise: T59, growth of the mean reward, as a share of its range.
        accuracy_fall: T59, fall of the held-out accuracy from its best.
        one_answer: T59, share of the answer that is given most often.
        embedding_norm: T61, gradient norm of the embedding.
        tied_norm: T61, the same where it is the output layer too, whose gradient is larger.
        grade_correlation: T62, of human grades with the reward.
        graded: T62, fewer samples with a grade tell nothing.
        swing_high: T63, ratio of a followed action from update to update.
        swing_low: T63, the same from below.
        start_low: T64, mean ratio to the policy at the start of the run.
        start_high: T64, the same from above.
    """

    updates: int = 8
    lasting: float = 0.3
    bursts: int = 3
    gain: float = 0.05
    clip_inert: float = 0.05
    outside_low: float = 0.1
    outside_high: float = 0.6
    outside_broken: float = 0.8
    ratio_std_high: float = 0.2
    ratio_std_low: float = 0.15
    mixed: float = 0.3
    ratio_max: float = 1.8
    clip_burst: float = 0.5
    negative: float = 0.3
    advantage_mean: float = -0.1
    advantage_variance: float = 100.0
    p90_high: float = 1.2
    p90_low: float = 0.9
    value_growth: float = 2.0
    explained: float = 0.05
    foreign: float = 0.95
    mismatch: float = 0.01
    reward_rise: float = 0.2
    accuracy_fall: float = 0.1
    one_answer: float = 0.5
    embedding_norm: float = 0.1
    tied_norm: float = 10.0
    grade_correlation: float = 0.6
    graded: int = 10
    swing_high: float = 1.5
    swing_low: float = 0.3
    start_low: float = 0.8
    start_high: float = 1.2
