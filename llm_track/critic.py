"""A value head on the hidden states of a language model, which it never moves."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from redline.algorithms.core.autograd import AutogradCritic
from redline.algorithms.core.types import Array
from redline.llm_track.policy import CausalLMPolicy


class HeadCritic(AutogradCritic):
    """V of the state before each token of a completion, from the policy's last hidden states.

    The states are read without a gradient, so fitting the head leaves the policy bit-identical. V
    starts at 0. States of the rollout at hand are kept until the policy moves, so that further
    passes over it cost no forward pass of the model.

    Args:
        policy: Whose states; the head is on its device, in float32 at least.
        hidden: Width of a hidden layer of tanh units; None: V is linear in the states.
        rng: Draws the hidden layer's weights; needed where there is one.
    """

    per_element = False

    def __init__(
        self,
        policy: CausalLMPolicy,
        hidden: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.policy = policy
        width = policy.head().weight.shape[1]
        super().__init__(_value_head(width, hidden, rng).to(policy.parameters.device, policy.dtype))
        self._kept: dict[bytes, Tensor] = {}
        self._kept_of = -1

    def network(self, observation: Tensor, mask: Tensor) -> Tensor:
        """V shaped like `mask`, 0 where it is False."""
        value = torch.zeros(mask.shape, dtype=self.dtype, device=mask.device)
        if mask.any():
            value[mask] = self.module(self._states(observation, mask))[..., 0]
        return value

    def values(self, observation: Array, mask: Array) -> Array:
        """See `redline.algorithms.core.contracts.Critic`."""
        self._kept.clear()  # a new rollout, as a rule
        return super().values(observation, mask)

    def _states(self, observation: Tensor, mask: Tensor) -> Tensor:
        """[N, D] in the order of the elements of `mask`."""
        if self._kept_of != self.policy.version:
            self._kept.clear()
            self._kept_of = self.policy.version
        keys = _keys(observation, mask)
        missing = [i for i, key in enumerate(keys) if key not in self._kept]
        if missing and (rows := self.policy.known_rows()) is not None:
            read, of, known = rows
            found = (row[valid] for row, valid in zip(known, of, strict=True))
            self._kept |= zip(_keys(read, of), found, strict=True)
            missing = [i for i in missing if keys[i] not in self._kept]
        if missing:
            states = self.policy.hidden(observation[missing], mask[missing])
            for i, row in zip(missing, states, strict=True):
                self._kept[keys[i]] = row[mask[i]]
        return torch.cat([self._kept[key] for key in keys])


def _keys(observation: Tensor, mask: Tensor) -> list[bytes]:
    """What tells a row and its elements from others."""
    rows, valid = (x.cpu().numpy() for x in (observation, mask))
    return [row.tobytes() + elements.tobytes() for row, elements in zip(rows, valid, strict=True)]


def _value_head(width: int, hidden: int | None, rng: np.random.Generator | None) -> nn.Sequential:
    layers: list[nn.Module] = []
    if hidden is not None:
        if rng is None:
            raise ValueError("the hidden layer of a critic is random: give rng")
        first = nn.Linear(width, hidden)
        draws = rng.normal(0.0, width**-0.5, (hidden, width))
        with torch.no_grad():
            first.weight.copy_(torch.as_tensor(draws))
            first.bias.zero_()
        layers = [first, nn.Tanh()]
    last = nn.Linear(width if hidden is None else hidden, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)
