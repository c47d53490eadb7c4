"""A multilayer perceptron on one flat buffer, in numpy, with hand-written derivatives.

On 64 numbers a torch operation costs 5-10 microseconds and a numpy one about 1, so for the
networks of classic control this is several times faster than an autograd graph.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

Activation = Literal["tanh", "relu"]
FloatArray = np.ndarray[Any, np.dtype[Any]]


def _views(flat: FloatArray, shapes: Sequence[tuple[int, ...]]) -> list[FloatArray]:
    views, start = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        views.append(flat[start : start + size].reshape(shape))
        start += size
    return views


def orthogonal(
    rng: np.random.Generator, rows: int, columns: int, gain: float, dtype: Any = np.float32
) -> FloatArray:
    """A [rows, columns] matrix with orthonormal rows or columns times `gain` (arXiv:1312.6120)."""
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))
    return (gain * (q if rows >= columns else q.T)).astype(dtype)


@functools.lru_cache(maxsize=8)
def _ones(count: int, dtype: Any) -> FloatArray:
    return np.ones(count, dtype=dtype)


class _Buffers:
    """`copies` arrays [rows, width] per width, in memory that grows to the largest `rows` seen."""

    def __init__(self, widths: Sequence[int], copies: int, dtype: Any) -> None:
        self._widths = [width for width in widths for _ in range(copies)]
        self._dtype = dtype
        self._memory: list[FloatArray] = []
        self._views: list[FloatArray] = []
        self._capacity = self._rows = -1

    def __call__(self, rows: int) -> list[FloatArray]:
        if rows != self._rows:
            if rows > self._capacity:
                self._memory = [np.empty((rows, w), dtype=self._dtype) for w in self._widths]
                self._capacity = rows
            self._views = [buffer[:rows] for buffer in self._memory]
            self._rows = rows
        return self._views


class Network:
    """x -> W_k act(... act(x W_1 + b_1) ...) + b_k, with parameters in slices of a flat buffer.

    Hidden layers live in buffers that grow to the largest batch seen: fresh arrays of this size go
    back to the operating system at every step, and their page faults cost more than the products.

    Attributes:
        size: Number of parameters.
    """

    def __init__(self, sizes: Sequence[int], activation: Activation) -> None:
        self.sizes = tuple(sizes)
        self.activation = activation
        self.shapes: list[tuple[int, ...]] = []
        for fan_in, fan_out in pairwise(sizes):
            self.shapes += [(fan_in, fan_out), (fan_out,)]
        self.size = sum(int(np.prod(shape)) for shape in self.shapes)
        self._hidden: list[FloatArray] = []

    @property
    def layers(self) -> dict[str, list[slice]]:
        """Where each layer lies in the flat vectors: "layer_1" with its biases, and so on."""
        found, start = {}, 0
        for number, (fan_in, fan_out) in enumerate(pairwise(self.sizes), 1):
            size = (fan_in + 1) * fan_out
            found[f"layer_{number}"] = [slice(start, start + size)]
            start += size
        return found

    def bind(self, parameters: FloatArray, gradient: FloatArray) -> None:
        """Use `parameters` and `gradient` (flat, `size` long) as storage."""
        self._weights = _views(parameters, self.shapes)
        self._layers = list(zip(self._weights[::2], self._weights[1::2], strict=True))
        self._gradient = _views(gradient, self.shapes)
        self._acting = _Buffers(self.sizes[1:-1], 1, parameters.dtype)
        self._learning = _Buffers(self.sizes[1:-1], 3, parameters.dtype)

    def initialise(self, rng: np.random.Generator, output_gain: float) -> None:
        """Orthogonal weights (gain sqrt 2, the last layer `output_gain`), zero biases."""
        last = len(self._weights) - 2
        for i in range(0, len(self._weights), 2):
            weight = self._weights[i]
            gain = output_gain if i == last else float(np.sqrt(2.0))
            rows, columns = weight.shape
            weight[:] = orthogonal(rng, rows, columns, gain, weight.dtype)
            self._weights[i + 1][:] = 0.0

    def _through(self, x: FloatArray, buffers: Sequence[FloatArray]) -> FloatArray:
        """Outputs for inputs `x`; the activations of the hidden layers stay in `buffers`."""
        tanh = self.activation == "tanh"
        for (weight, bias), out in zip(self._layers, buffers, strict=False):
            np.dot(x, weight, out=out)
            out += bias
            x = np.tanh(out, out=out) if tanh else np.maximum(out, 0.0, out=out)
        # Never in a buffer: the caller keeps it.
        weight, bias = self._layers[-1]
        y: FloatArray = np.dot(x, weight)
        y += bias
        return y

    def __call__(self, x: FloatArray) -> FloatArray:
        """Outputs [N, out] for inputs [N, in]; what `forward` kept stays."""
        return self._through(x, self._acting(len(x)))

    def forward(self, x: FloatArray) -> FloatArray:
        """Outputs [N, out], keeping the activations for `backward`, `jvp` and `vjp`."""
        buffers = self._learning(len(x))[::3]
        self._hidden = [x, *buffers]
        return self._through(x, buffers)

    def _times_slope(self, delta: FloatArray, h: FloatArray, scratch: FloatArray) -> None:
        """delta *= derivative of the activation, from its value h."""
        if self.activation == "tanh":
            np.multiply(h, h, out=scratch)
            np.subtract(1.0, scratch, out=scratch)
            delta *= scratch
        else:
            delta *= h > 0.0

    def backward(self, delta: FloatArray) -> None:
        """Write d(sum delta * output)/d parameters of the last `forward` into the gradient."""
        self._backward(delta, self._gradient)

    def _backward(self, delta: FloatArray, out: list[FloatArray]) -> None:
        room = self._learning(len(delta))
        ones = _ones(len(delta), delta.dtype)
        for layer in range(len(self._hidden) - 1, -1, -1):
            h = self._hidden[layer]
            np.dot(h.T, delta, out=out[2 * layer])
            # A product with ones is four times as fast as a sum over the first axis.
            np.dot(ones, delta, out=out[2 * layer + 1])
            if layer:
                _, behind, scratch = room[3 * (layer - 1) : 3 * layer]
                # dot, for matmul sends a product with one inner element through a slow path.
                np.dot(delta, self._weights[2 * layer].T, out=behind)
                self._times_slope(behind, h, scratch)
                delta = behind

    def jvp(self, tangent: FloatArray) -> FloatArray:
        """Directional derivative of the last `forward`'s outputs along a flat tangent."""
        w, v = self._weights, _views(tangent, self.shapes)
        room = self._learning(len(self._hidden[0]))
        moved = self._hidden[0] @ v[0] + v[1]
        for layer in range(1, len(self._hidden)):
            h = self._hidden[layer]
            self._times_slope(moved, h, room[3 * layer - 1])
            moved = moved @ w[2 * layer]
            moved += h @ v[2 * layer]
            moved += v[2 * layer + 1]
        return moved

    def vjp(self, delta: FloatArray) -> FloatArray:
        """d(sum delta * output)/d parameters of the last `forward`, as a new flat vector."""
        flat = np.empty(self.size, dtype=delta.dtype)
        self._backward(delta, _views(flat, self.shapes))
        return flat


class Adam:
    """Adam (arXiv:1412.6980) on flat numpy buffers, ascending; equal to torch.optim.Adam."""

    def __init__(
        self,
        parameters: FloatArray,
        gradient: FloatArray,
        eps: float,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        self._parameters, self._gradient = parameters, gradient
        self._eps, self._betas = eps, betas
        self._mean = np.zeros_like(parameters)
        self._square = np.zeros_like(parameters)
        self._buffer = np.empty_like(parameters)
        self._steps = 0

    def step(self, lr: float) -> None:
        """theta += lr * m_hat / (sqrt(v_hat) + eps)."""
        self._steps += 1
        (b1, b2), g, tmp = self._betas, self._gradient, self._buffer
        np.subtract(g, self._mean, out=tmp)
        tmp *= 1.0 - b1
        self._mean += tmp
        np.multiply(g, g, out=tmp)
        tmp -= self._square
        tmp *= 1.0 - b2
        self._square += tmp
        # The bias corrections are moved to eps and lr: two passes fewer over the parameters.
        spread = math.sqrt(1.0 - b2**self._steps)
        np.sqrt(self._square, out=tmp)
        tmp += self._eps * spread
        np.divide(self._mean, tmp, out=tmp)
        tmp *= lr * spread / (1.0 - b1**self._steps)
        self._parameters += tmp

    def state_dict(self) -> dict[str, Any]:
        """Moments and step count."""
        return {
            "mean": self._mean.copy(),
            "square": self._square.copy(),
            "steps": self._steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._mean[:] = state["mean"]
        self._square[:] = state["square"]
        self._steps = state["steps"]
