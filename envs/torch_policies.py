"""Torch policy and critic for control: any module, any device.

With the default network they start from the same numbers as the numpy pair, keep them in the same
order, and draw actions from the same random stream, so a run is the same up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from redline.algorithms.core.autograd import AutogradCritic, AutogradPolicy
from redline.algorithms.core.distributions import Distribution
from redline.envs.network import Activation, Network
from redline.envs.tasks import TaskError


def require_device(name: str) -> torch.device:
    """The device called `name`.

    Raises:
        TaskError: It is not there, or torch knows no such name.
    """
    try:
        # A number that comes back: "meta" can be named too, but holds none.
        torch.zeros(1, device=name).cpu()
    except (AssertionError, RuntimeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise TaskError(f"device {name!r} cannot be used: {reason}") from error
    return torch.device(name)


class MLP(nn.Module):
    """The numpy `Network` in torch: the same initial weights [in, out], in the same order.

    Args:
        sizes: Widths, from the observation to the output.
        activation: "tanh" or "relu".
        rng: Draws the initial weights (orthogonal, gain sqrt 2).
        output_gain: Gain of the last layer.
        dtype: float32, or float64 for exact tests.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        activation: Activation,
        rng: np.random.Generator,
        output_gain: float,
        dtype: Any = np.float32,
    ) -> None:
        super().__init__()
        network = Network(sizes, activation)
        flat = np.zeros(network.size, dtype=dtype)
        network.bind(flat, flat.copy())
        network.initialise(rng, output_gain)
        lengths = [math.prod(shape) for shape in network.shapes]
        pieces = torch.from_numpy(flat).split(lengths)  # type: ignore[no-untyped-call]
        self.layers = nn.ParameterList(
            nn.Parameter(piece.view(shape))
            for piece, shape in zip(pieces, network.shapes, strict=True)
        )
        self.activation = torch.tanh if activation == "tanh" else torch.relu

    def forward(self, x: Tensor) -> Tensor:
        """Outputs [..., out] for inputs [..., in]."""
        layers = list(self.layers)
        for weight, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
            x = self.activation(nn.functional.linear(x, weight.T, bias))
        return nn.functional.linear(x, layers[-2].T, layers[-1])


class TorchPolicy(AutogradPolicy):
    """pi(a|s) on control from any module; `mlp` makes the counterpart of `MLPPolicy`."""

    @classmethod
    def mlp(
        cls,
        observation_size: int,
        distribution: Distribution,
        hidden: Sequence[int],
        activation: Activation,
        rng: np.random.Generator,
        log_std: float = 0.0,
        dtype: Any = np.float32,
        device: torch.device | str = "cpu",
    ) -> Self:
        """A multilayer perceptron; arguments as for `redline.envs.policies.MLPPolicy`."""
        sizes = (observation_size, *hidden, distribution.width)
        module = MLP(sizes, activation, rng, output_gain=0.01, dtype=dtype)
        return cls(module.to(device), distribution, log_std)

    def layer_of(self, name: str) -> str:
        """As `MLPPolicy` names the layers of `mlp`; of any other module by the module's parts."""
        owner, _, number = name.rpartition(".")
        if name.startswith("extra_"):
            return "log_std"
        if owner == "layers" and number.isdigit():
            return f"layer_{int(number) // 2 + 1}"
        return super().layer_of(name)


class TorchCritic(AutogradCritic):
    """V(s) on control from any module; `mlp` makes the counterpart of `MLPCritic`."""

    @classmethod
    def mlp(
        cls,
        observation_size: int,
        hidden: Sequence[int],
        activation: Activation,
        rng: np.random.Generator,
        dtype: Any = np.float32,
        device: torch.device | str = "cpu",
    ) -> Self:
        """A multilayer perceptron; arguments as for `redline.envs.policies.MLPCritic`."""
        sizes = (observation_size, *hidden, 1)
        return cls(MLP(sizes, activation, rng, output_gain=1.0, dtype=dtype).to(device))
