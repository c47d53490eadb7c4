"""The numpy Adam against torch.optim.Adam."""

from typing import Any

import numpy as np
import pytest
import torch
from closeness import close, identical

from redline.envs.network import Adam


def run_torch(start: Any, gradients: Any, lr: list[float], eps: float) -> Any:
    parameters = torch.tensor(start, requires_grad=True)
    optimizer = torch.optim.Adam([parameters], lr=lr[0], eps=eps)
    for gradient, rate in zip(gradients, lr, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        parameters.grad = -torch.tensor(gradient)  # torch descends
        optimizer.step()
    return parameters


# Gradients from far below to far above epsilon.
@pytest.mark.parametrize("scale", [1e-9, 1e-5, 1.0, 1e4])
@pytest.mark.parametrize("eps", [1e-8, 1e-5])
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float32, 2e-6)])
def test_steps_are_torchs(dtype: Any, rtol: float, eps: float, scale: float) -> None:
    rng = np.random.default_rng(0)
    start = rng.normal(size=50).astype(dtype)
    gradients = (scale * rng.normal(size=(30, 50))).astype(dtype)
    gradients[:, :5] = 0.0
    rates = list(np.linspace(0.01, 0.0, 30))
    parameters, buffer = start.copy(), np.zeros(50, dtype)
    optimizer = Adam(parameters, buffer, eps)
    for gradient, rate in zip(gradients, rates, strict=True):
        buffer[:] = gradient
        optimizer.step(rate)
    identical(parameters[:5], start[:5])
    close(parameters, run_torch(start, gradients, rates, eps), rtol=rtol, atol=rtol)


def test_a_restored_state_goes_on_bit_for_bit() -> None:
    rng = np.random.default_rng(1)
    gradients = rng.normal(size=(6, 8))
    straight, resumed = np.zeros(8), np.zeros(8)
    buffer = np.zeros(8)
    first = Adam(straight, buffer, 1e-5)
    for gradient in gradients[:3]:
        buffer[:] = gradient
        first.step(0.1)
    resumed[:] = straight
    second = Adam(resumed, buffer, 1e-5)
    second.load_state_dict(first.state_dict())
    for gradient in gradients[3:]:
        buffer[:] = gradient
        first.step(0.1)
        second.step(0.1)
    identical(straight, resumed)
