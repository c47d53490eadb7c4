"""The same policies in torch's own layers and distributions, differentiated by autograd."""

import math
from itertools import pairwise
from typing import Any

import array_api_compat.torch as xp_torch
import numpy as np
import torch
from torch import Tensor
from torch import distributions as td

from redline.algorithms.core.distributions import Categorical, Distribution, MultiCategorical
from redline.algorithms.core.gaussians import DiagGaussian, TanhGaussian
from redline.envs.network import Network
from redline.envs.policies import MLPPolicy

XP = xp_torch


class Squashed(td.Independent):
    """middle + half tanh(u), u normal; densities are told by u, and the KL is that of u."""

    def __init__(self, normal: td.Normal, half: tuple[float, ...]) -> None:
        super().__init__(normal, 1)
        self.normal, self.half = normal, torch.tensor(half, dtype=normal.loc.dtype)

    def _log_slope(self, u: Tensor) -> Tensor:
        tanh = td.TanhTransform()
        return tanh.log_abs_det_jacobian(u, tanh(u)) + torch.log(self.half)

    def log_prob(self, action: Tensor) -> Tensor:
        return super().log_prob(action) - self._log_slope(action).sum(-1)

    def entropy(self) -> Tensor:
        # By the physicists' rule of as many nodes, whose weight is exp(-x^2).
        nodes, weights = map(torch.as_tensor, np.polynomial.hermite.hermgauss(32))
        u = self.normal.loc + math.sqrt(2.0) * nodes.reshape(-1, *[1] * self.normal.loc.ndim) * (
            self.normal.scale
        )
        mean = torch.tensordot(weights / weights.sum(), self._log_slope(u), dims=1)
        return super().entropy() + mean.sum(-1)


class Reference:
    """A distribution made of torch.distributions, from what a network puts out."""

    def __init__(self, distribution: Distribution, raw: Tensor, log_std: Tensor | None) -> None:
        if isinstance(distribution, DiagGaussian):
            assert log_std is not None
            normal = td.Normal(raw, log_std.exp().expand_as(raw))
            self.parts: list[Any] = [td.Independent(normal, 1)]
        elif isinstance(distribution, TanhGaussian):
            assert log_std is not None
            normal = td.Normal(raw, log_std.exp().expand_as(raw))
            self.parts = [Squashed(normal, distribution.half_range)]
        elif isinstance(distribution, Categorical):
            self.parts = [td.Categorical(logits=raw)]
        else:
            assert isinstance(distribution, MultiCategorical)
            pieces = raw.split(distribution.nvec, dim=-1)
            self.parts = [td.Categorical(logits=piece) for piece in pieces]

    def log_prob(self, action: Tensor) -> Tensor:
        if len(self.parts) == 1:
            return self.parts[0].log_prob(action)
        return sum(part.log_prob(action[..., i]) for i, part in enumerate(self.parts))

    def entropy(self) -> Tensor:
        return sum(part.entropy() for part in self.parts)

    def kl_to(self, other: "Reference") -> Tensor:
        """KL(self||other)."""
        pairs = zip(self.parts, other.parts, strict=True)
        return sum(td.kl_divergence(mine, theirs) for mine, theirs in pairs)


def leaf(array: Any) -> Tensor:
    """A float64 copy that collects a gradient."""
    return torch.tensor(np.asarray(array), dtype=torch.float64).requires_grad_(True)


def network_outputs(network: Network, flat: Tensor, observation: Any) -> tuple[Tensor, Tensor]:
    """Outputs [..., width] from a flat parameter vector, and what is left of the vector."""
    x = torch.as_tensor(observation)
    activation = {"tanh": torch.tanh, "relu": torch.relu}[network.activation]
    start, layers = 0, list(pairwise(network.sizes))
    for i, (fan_in, fan_out) in enumerate(layers):
        split = start + fan_in * fan_out
        weight, bias = flat[start:split].reshape(fan_in, fan_out), flat[split : split + fan_out]
        x = torch.nn.functional.linear(x, weight.T, bias)
        x = activation(x) if i < len(layers) - 1 else x
        start = split + fan_out
    return x, flat[start:]


def reference(policy: MLPPolicy, flat: Tensor, observation: Any) -> Reference:
    """pi(.|s) with the parameters `flat`."""
    raw, rest = network_outputs(policy.network, flat, observation)
    return Reference(policy.distribution, raw, rest if len(rest) else None)
