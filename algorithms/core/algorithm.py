"""A method as parts that fit together, and what it asks of a sampler."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from redline.algorithms.core.advantages import Advantage
from redline.algorithms.core.aggregation import Aggregate
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.critic import CriticFit
from redline.algorithms.core.distributions import Distribution
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.shaping import Shaping
from redline.algorithms.core.surrogates import Surrogate
from redline.algorithms.core.types import Need
from redline.algorithms.core.updates import UpdateRule


@dataclass(frozen=True)
class Algorithm:
    """A method: five parts, and what it asks of the sampler.

    Attributes:
        need: What one rollout holds.
        advantage: Rollout -> advantage.
        surrogate: Weights on grad log pi.
        update: The rule that moves the policy.
        aggregate: Coefficient per element.
        clip: Bounds on the ratio; None for methods without a clip.
        penalties: Entropy bonus and KL to the policy at the start of the run.
        shaping: What is added to rewards and advantages.
        critic: How V is fitted, where the advantage needs it.
        standardise: Advantages to mean 0 and std 1 per "batch", per "minibatch" (optimiser step,
            as SB3 does), or "none".
        recompute_advantage: The critic is fitted between the policy's passes over a rollout, one
            pass each, and the advantages are estimated anew with it.

    Raises:
        ValueError: Parts that do not fit together.
    """

    need: Need
    advantage: Advantage
    surrogate: Surrogate
    update: UpdateRule
    aggregate: Aggregate = field(default_factory=Aggregate)
    clip: Clip | None = None
    penalties: Penalties = field(default_factory=Penalties)
    shaping: Shaping = field(default_factory=Shaping)
    critic: CriticFit = field(default_factory=CriticFit)
    standardise: Literal["none", "batch", "minibatch"] = "none"
    recompute_advantage: bool = False

    def __post_init__(self) -> None:
        if self.surrogate.clips and self.clip is None:
            raise ValueError(f"the surrogate {self.surrogate.name} needs clip bounds")
        if self.update.needs_value and not self.surrogate.meaningful_value:
            raise ValueError(
                f"a line search compares objective values, and {self.surrogate.name} has a right "
                "gradient but no meaningful value; use the ratio surrogate"
            )
        if self.clip is not None and self.clip.per_element and self.surrogate.of_sequence:
            raise ValueError(
                f"clip.schedule {self.clip.schedule!r} gives every token bounds of its own, and "
                f"{self.surrogate.name} clips one ratio per sequence"
            )
        if self.clip is not None and self.clip.of_groups and self.need.group_size < 2:
            raise ValueError(
                f"clip.schedule {self.clip.schedule!r} compares rewards within groups, and this "
                "method has none"
            )
        if self.advantage.needs_whole_episodes and self.need.steps is not None:
            raise ValueError(
                "this advantage needs whole episodes; ask for a number of episodes, not of steps"
            )

    @property
    def needs_critic(self) -> bool:
        """A value function must be there."""
        return self.advantage.needs_critic

    def require_space(self, distribution: Distribution) -> None:
        """Refuse an action space on which the method means nothing.

        Raises:
            ValueError: With the reason.
        """
        if self.clip is not None and self.clip.per_element and distribution.most_entropy is None:
            raise ValueError(
                f"clip.schedule {self.clip.schedule!r} reads the probability of an action, and a "
                "Box action has a density, which is no probability and may be above 1"
            )

    @property
    def needs_entropy(self) -> bool:
        """Some part reads the entropy of pi_old at every element."""
        return self.shaping.entropy > 0.0 or (self.clip is not None and self.clip.of_entropy)

    @property
    def level(self) -> Literal["token", "sequence"]:
        """Unit of the method; "sequence" when rows must be whole episodes."""
        parts = (self.surrogate.level, self.aggregate.level)
        return "sequence" if "sequence" in parts else "token"
