"""Sampling completions with a key-value cache: the prompt once, then one token at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import array_api_compat.torch as xp
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear
from transformers import DynamicCache

from redline.algorithms.core.mixture import MixturePolicy, log_mixture
from redline.algorithms.core.types import Array
from redline.llm_track.network import CausalNetwork
from redline.llm_track.ranks import ALONE, Ranks

# Rows that have ended are dropped from the cache once they are this part of it: dropping copies
# the cache, keeping wastes their share of every step.
_DROP_SHARE = 0.125


class Prompts(NamedTuple):
    """Tokens [P, L] padded on the left, and their mask (True = a real token)."""

    tokens: Array
    mask: Array


class Completions(NamedTuple):
    """What was generated, numpy.

    Attributes:
        tokens: [B, T], the end of sequence included; padded on the right.
        mask: [B, T], True where a token was generated.
        ended: [B], the last token is the end of sequence: the cap did not cut.
        log_prob: [B, T] of the distribution that was sampled from, in nats; 0 where masked.
        states: [B, T, D] the model's last states that the tokens were drawn from, on its device; 0
            where masked. None where they were not asked for, or are not to be had.
    """

    tokens: Array
    mask: Array
    ended: Array
    log_prob: Array
    states: Tensor | None = None


def pad_left(rows: Sequence[Sequence[int]], pad_id: int) -> Prompts:
    """Rows of tokens as one array; the mask says what is padding, whatever `pad_id` is."""
    longest = max(map(len, rows))
    mask = np.arange(longest) >= longest - np.array([len(row) for row in rows])[:, None]
    tokens = np.full(mask.shape, pad_id, dtype=np.int64)
    tokens[mask] = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
    return Prompts(tokens, mask)


class Decoder:
    """Next-token log-probabilities of one model for rows that grow.

    Args:
        model: A transformers causal LM in evaluation mode.
        temperature: Divides the logits; the log-probabilities are those of the result.
        head: Weight and bias of its output layer; None: as they are in the model.

    Attributes:
        states: [B, D] the last states behind the log-probabilities that were given last.
    """

    states: Tensor

    def __init__(
        self, model: Any, temperature: float, head: tuple[Tensor, Tensor | None] | None = None
    ) -> None:
        self._model, self._temperature = model, temperature
        output = model.get_output_embeddings()
        self._head = head or (output.weight, output.bias)
        self._cache = DynamicCache(config=model.config)

    @torch.no_grad()
    def start(self, prompts: Prompts, repeat: int) -> Tensor:
        """Read the prompts once, then stand for `repeat` rows each.

        Returns:
            [P * repeat, V] log-probabilities in at least float32; rows of a prompt are neighbours.
        """
        tokens, mask = self._on_device(prompts.tokens), self._on_device(prompts.mask)
        log_probs = self._step(tokens, mask.long(), _positions(mask))
        self._cache.batch_repeat_interleave(repeat)
        self._mask = mask.long().repeat_interleave(repeat, dim=0)
        self._position = self._mask.sum(dim=1)
        self.states = self.states.repeat_interleave(repeat, dim=0)
        return log_probs.repeat_interleave(repeat, dim=0)

    @torch.no_grad()
    def append(self, tokens: Array) -> Tensor:
        """Add one token [B] to every row; gives what may follow it, [B, V]."""
        self._mask = torch.nn.functional.pad(self._mask, (0, 1), value=1)
        log_probs = self._step(
            self._on_device(tokens)[:, None], self._mask, self._position[:, None]
        )
        self._position = self._position + 1
        return log_probs

    def keep(self, rows: Array) -> None:
        """Go on with the rows of these numbers only."""
        index = self._on_device(rows)
        self._cache.batch_select_indices(index)
        self._mask, self._position = self._mask[index], self._position[index]

    def _step(self, tokens: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        self.states = self._model.base_model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            cache=self._cache,
            use_cache=True,
        ).last_hidden_state[:, -1]
        logits = linear(self.states, *self._head)
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return torch.log_softmax(wide / self._temperature, dim=-1)

    def _on_device(self, value: Array) -> Tensor:
        return torch.as_tensor(value, device=self._model.device)


class MixtureDecoder:
    """Decoders side by side: log sum_k w_k p_k of their next-token distributions.

    A row's component is not drawn once: at every token the mixture is that of the policy, whose
    log-probabilities are sums over tokens of these.
    """

    def __init__(self, decoders: Sequence[Decoder], weights: Sequence[float]) -> None:
        self._decoders, self._weights = list(decoders), list(weights)

    def start(self, prompts: Prompts, repeat: int) -> Tensor:
        """See `Decoder`."""
        return self._mix([part.start(prompts, repeat) for part in self._decoders])

    def append(self, tokens: Array) -> Tensor:
        """See `Decoder`."""
        return self._mix([part.append(tokens) for part in self._decoders])

    def keep(self, rows: Array) -> None:
        """See `Decoder`."""
        for part in self._decoders:
            part.keep(rows)

    def _mix(self, log_probs: Sequence[Tensor]) -> Tensor:
        mixed: Tensor = log_mixture(xp, self._weights, log_probs)
        return mixed


def decoder_of(policy: Any, temperature: float) -> Decoder | MixtureDecoder:
    """What decodes a policy: one with a `model`, or a mixture with `components` and `weights`."""
    if isinstance(policy, MixturePolicy):
        components: list[Any] = policy.components
        parts = [Decoder(part.model, temperature) for part in components]
        return MixtureDecoder(parts, policy.weights)
    head = policy.head_tensors() if isinstance(policy, CausalNetwork) else None
    return Decoder(policy.model, temperature, head)


@torch.no_grad()
def generate(
    decoder: Decoder | MixtureDecoder,
    prompts: Prompts,
    *,
    repeat: int,
    cap: int,
    eos_id: int,
    pad_id: int,
    rng: np.random.Generator | None,
    ranks: Ranks = ALONE,
    keep_states: bool = False,
) -> Completions:
    """Complete every prompt `repeat` times.

    One uniform number per row and token is drawn before the first token, so that a completion
    depends on the seed and its row, not on when other rows end.

    Args:
        decoder: Fresh.
        prompts: [P, L].
        repeat: Completions of a prompt; they stand together.
        cap: Most tokens of a completion, the end of sequence included.
        eos_id: Ends a completion.
        pad_id: Fills rows after their end.
        rng: Draws tokens; None: always the most probable one.
        ranks: Processes that share the prompts; each gets all completions.
        keep_states: Give the states too, where one model decodes in this process alone.
    """
    alone = decoder if isinstance(decoder, Decoder) and ranks is ALONE else None
    watched = alone if keep_states else None
    seen: list[tuple[Array, Tensor]] = []
    count = len(prompts.tokens) * repeat
    uniform = None if rng is None else rng.random((count, cap))
    tokens = np.zeros((count, cap), dtype=np.int64)
    log_prob = np.zeros((count, cap))
    length = np.zeros(count, dtype=np.int64)
    ended = np.zeros(count, dtype=bool)
    own = ranks.rows(len(prompts.tokens))
    # Processes in step all decode until the last of them is done: any row will do for that.
    held = own if len(own) or not ranks.in_step else np.arange(1)
    # Those that the decoder still holds, and which of them go on.
    rows = (held[:, None] * repeat + np.arange(repeat)).reshape(-1)
    going = np.full(len(rows), len(own) > 0)
    if len(held):
        log_probs = decoder.start(Prompts(*(part[held] for part in prompts)), repeat)
    for t in range(cap if len(held) else 0):
        chosen, its_log_prob = choose(log_probs, None if uniform is None else uniform[rows, t])
        live = rows[going]
        tokens[live, t], log_prob[live, t] = chosen[going], its_log_prob[going]
        length[live] = t + 1
        ended[live] = chosen[going] == eos_id
        if watched is not None:
            seen.append((live, watched.states[going]))
        going = going & (chosen != eos_id)
        if t + 1 == cap or not ranks.most(int(going.any())):
            break
        left = np.flatnonzero(going)
        if len(left) <= (1.0 - _DROP_SHARE) * len(rows):
            left = left if len(left) else np.arange(1)
            decoder.keep(left)
            rows, chosen, going = rows[left], chosen[left], going[left]
        log_probs = decoder.append(chosen)
    tokens, log_prob, length, ended = map(ranks.total, (tokens, log_prob, length, ended))
    longest = int(length.max())
    mask = np.arange(longest) < length[:, None]
    tokens = np.where(mask, tokens[:, :longest], pad_id)
    states = None if watched is None else _in_place(seen, mask.shape)
    return Completions(tokens, mask, ended, log_prob[:, :longest], states)


def _in_place(seen: Sequence[tuple[Array, Tensor]], shape: tuple[int, int]) -> Tensor:
    """States [B, T, D] from those of every step, of the rows that were going then."""
    first = seen[0][1]
    states = first.new_zeros((*shape, first.shape[1]))
    for t, (rows, found) in enumerate(seen):
        states[rows, t] = found
    return states


def choose(log_probs: Tensor, uniform: Array | None) -> tuple[Array, Array]:
    """A token for every row, and its log-probability.

    Args:
        log_probs: [B, V].
        uniform: [B] in [0, 1): the token is where the distribution function passes it; None: the
            most probable token.
    """
    if uniform is None:
        chosen = log_probs.argmax(dim=-1)
    else:
        # float64: over a large vocabulary the sum's rounding would favour some tokens.
        reached = log_probs.double().exp().cumsum(dim=-1)
        # The sum is 1 but for rounding; scaled by it, the last token stays within reach.
        target = torch.as_tensor(uniform, device=log_probs.device) * reached[:, -1]
        chosen = torch.searchsorted(reached, target[:, None], right=True)[:, 0]
        chosen = chosen.clamp(max=log_probs.shape[-1] - 1)
    picked = log_probs.gather(-1, chosen[:, None])[:, 0]
    return chosen.cpu().numpy(), picked.cpu().numpy()


def _positions(mask: Tensor) -> Tensor:
    """Number of a token within its row; padding on the left counts nothing."""
    return (mask.long().cumsum(dim=1) - 1).clamp(min=0)
