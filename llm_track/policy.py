"""A causal language model as a policy: a row is a completion, an element is one of its tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from redline.algorithms.core.arrays import host
from redline.algorithms.core.types import Array, Batch, Evaluation, KLTerm, Params
from redline.llm_track.completions import Index, Part, slices
from redline.llm_track.fisher import fisher_product
from redline.llm_track.head import Head, LazyLogProbs, Vocabulary, dense, gradient_of
from redline.llm_track.network import CausalNetwork

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAX_COPY = 100_000_000

# Log-probabilities over up to this many tokens are held whole where pi_old is frozen.
_FULL_VOCABULARY = 1024


class _Terms(NamedTuple):
    """Coefficients [B, T] of log pi, of the entropy and of minus the divergence; None: no term."""

    weight: Tensor
    entropy: Tensor | None
    kl: Tensor | None
    reverse: bool

    def acting(self, mask: Tensor) -> Tensor:
        """The valid elements that add anything to the gradient; nan does."""
        given = (part for part in (self.weight, self.entropy, self.kl) if part is not None)
        return mask & torch.stack([part != 0.0 for part in given]).any(0)


class CausalLMPolicy(CausalNetwork):
    """pi(token | prompt and completion up to it); see `redline.algorithms.core.contracts.Policy`.

    Shapes of a batch: observation int64 [B, L, 2] (token ids, and 1 where a token is real), action
    int64 [B, T] (the last T of the L tokens), mask [B, T] the generated tokens, EOS included.
    Results are 0 where the mask is False.

    Memory: the trunk runs on `rows` rows at a time, the vocabulary is entered by `chunk` tokens at
    a time (float32 at least, whatever the model's precision) and by valid elements only.

    Cost of `gradient` in forward (F) and backward (B) passes: F + B when the batch is as small as
    one micro-batch. Otherwise F + F + B, for the weights depend on all log-probabilities; the
    second F and the B are only run on rows with a weight.

    Parameters in bfloat16 lose updates below 1/256 of a weight; train in float32.

    Args:
        model: A transformers causal LM on its device, in its precision. Dropout is off from here.
        temperature: The one that completions are sampled at.
        rows: Rows of a micro-batch; None: as many as make 1 GB of activations.
        chunk: Tokens whose log-probabilities over the vocabulary are held at once; None: 32 MB.
        full: pi_old is frozen as log-probabilities [B, T, V]; else as hidden states and a copy of
            the head, from which they are recomputed. None: up to 1024 tokens. A mixture of
            policies needs them.
        fisher_layers: Parts of parameter names; `fisher_product` is then that of the block of
            those parameters alone, and 0 for all others, which the damping alone then scales.

    Raises:
        ValueError: The temperature is not positive, the head is not linear, a parameter has another
            precision or device than the others, or nothing is trainable.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        temperature: float = 1.0,
        *,
        rows: int | None = None,
        chunk: int | None = None,
        full: bool | None = None,
        fisher_layers: Sequence[str] = (),
    ) -> None:
        if not temperature > 0.0:
            raise ValueError(
                f"the temperature of a policy that learns must be positive, got {temperature:g}; "
                "0 is greedy, for evaluation"
            )
        super().__init__(model, temperature, rows, chunk)
        self.fisher_layers = tuple(fisher_layers)
        vocabulary = self.output.out_features
        self.full = vocabulary <= _FULL_VOCABULARY if full is None else full
        self.distribution = Vocabulary(vocabulary, self.chunk)

    def copy(self) -> Self:
        """See `redline.algorithms.core.contracts.Policy`.

        Raises:
            ValueError: The model has more than 100 million parameters.
        """
        if self.size > MAX_COPY:
            raise ValueError(
                f"this method (cpi) keeps several copies of the policy, which is refused above "
                f"{MAX_COPY // 10**6} million parameters, and this model has "
                f"{self.size / 1e6:.0f} million; use a smaller model, or another method"
            )
        twin = type(self)(
            copy.deepcopy(self.model),
            self.temperature,
            rows=self.rows,
            chunk=self.chunk,
            full=self.full,
            fisher_layers=self.fisher_layers,
        )
        twin.ranks = self.ranks
        twin.restore(self.parameters)
        return twin

    def _scored(self, mask: Tensor, states: Tensor, head: Head) -> Iterator[tuple[Index, Tensor]]:
        """Chunk by chunk: places in the batch, and log pi [n, V] there."""
        row, column = mask.nonzero(as_tuple=True)
        for at in slices(len(row), self.chunk):
            yield (row[at], column[at]), head.log_probs(states[row[at], column[at]])

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> Evaluation:
        """See `redline.algorithms.core.contracts.Policy`."""
        mine = self.ranks.own(batch.mask)
        head, states = self.head(), self.own_hidden(batch.observation, mine)
        log_prob = states.new_zeros(batch.mask.shape)
        entropy = torch.zeros_like(log_prob)
        full = states.new_zeros((*log_prob.shape, self.distribution.n)) if self.full else None
        for index, log_p in self._scored(mine, states, head):
            log_prob[index] = _chosen(log_p, batch.action[index])
            entropy[index] = self.distribution.entropy(self.xp, (log_p,))
            if full is not None:
                full[index] = log_p
        self.ranks.add(log_prob, entropy, states if full is None else full)
        frozen = LazyLogProbs(states, head.clone()) if full is None else full
        return Evaluation(log_prob, entropy, (frozen,))

    def gradient(
        self,
        batch: Batch,
        weigh: Callable[[Array], Array],
        entropy: Array | None = None,
        kl: KLTerm | None = None,
    ) -> None:
        """See `redline.algorithms.core.contracts.Policy`."""
        self.collect_into(self.gradient_buffer)
        mine = self.ranks.own(batch.mask)
        parts = list(self.parts(batch.observation, mine))
        kept = None
        if self.fit_together(parts):
            with torch.enable_grad():
                kept = [self.states(part) for part in parts]
            states = self.scattered(parts, kept, mine)
        else:
            states = self.own_hidden(batch.observation, mine)
        terms = self._terms(batch, states, weigh, entropy, kl)
        if kept is None:
            parts = list(self.parts(batch.observation, terms.acting(mine)))
        with torch.enable_grad(), self.learning_head() as head:
            for i, part in enumerate(parts):
                own = self.states(part) if kept is None else kept[i]
                self._backward(part, own, batch, terms, head)
        self.pool(self.gradient_buffer)

    @torch.no_grad()
    def _terms(
        self,
        batch: Batch,
        states: Tensor,
        weigh: Callable[[Array], Array],
        entropy: Array | None,
        kl: KLTerm | None,
    ) -> _Terms:
        """The coefficients, from what the states [B, T, D] of this process's rows give."""
        log_prob = states.new_zeros(batch.mask.shape)
        divergence = torch.zeros_like(log_prob)
        reverse = kl is not None and kl.reverse
        for index, log_p in self._scored(self.ranks.own(batch.mask), states, self.head()):
            log_prob[index] = _chosen(log_p, batch.action[index])
            if kl is not None:
                divergence[index] = self._divergence(batch, index, log_p, reverse)
        self.ranks.add(log_prob, divergence)
        pull = None if kl is None else kl.coefficient(divergence)
        return _Terms(weigh(log_prob), entropy, pull, reverse)

    def _divergence(self, batch: Batch, index: Index, log_p: Tensor, reverse: bool) -> Tensor:
        """KL(old||new), or KL(new||old), of some elements whose log pi is [n, V]."""
        old = dense(batch.reference[0][index])
        pair = (log_p, old) if reverse else (old, log_p)
        divergence: Tensor = self.distribution.kl(self.xp, pair[:1], pair[1:])
        return divergence

    def _backward(
        self, part: Part, states: Tensor, batch: Batch, terms: _Terms, head: Head
    ) -> None:
        """Add the derivatives of a part's terms; the vocabulary's first, then one of the trunk."""
        row, column = part.elements
        pulled = torch.zeros_like(states)
        for at in slices(len(states), self.chunk):
            index = row[at], column[at]
            here = states.detach()[at].requires_grad_(True)
            log_p = head.log_probs(here)
            chosen = _chosen(log_p, batch.action[index])
            objective = terms.weight[index] @ chosen
            if terms.entropy is not None:
                spread = self.distribution.entropy(self.xp, (log_p,))
                objective = objective + terms.entropy[index] @ spread
            if terms.kl is not None:
                divergence = self._divergence(batch, index, log_p, terms.reverse)
                objective = objective - terms.kl[index] @ divergence
            torch.autograd.backward(objective)
            pulled[at] = gradient_of(here)
        if states.requires_grad:
            torch.autograd.backward(states, pulled)

    @torch.no_grad()
    def kl(
        self, batch: Batch, evaluation: Evaluation | None = None, reverse: bool = False
    ) -> Array:
        """See `redline.algorithms.core.contracts.Policy`."""
        old, new = batch.reference[0], (evaluation or self.evaluate(batch)).params[0]
        pair = (new, old) if reverse else (old, new)
        divergence = torch.zeros(batch.mask.shape, dtype=self.dtype, device=batch.mask.device)
        mine = self.ranks.own(batch.mask)
        first, second = ((part[mine],) for part in pair)
        divergence[mine] = self.distribution.kl(self.xp, first, second)
        self.ranks.add(divergence)
        return divergence

    def fisher_product(self, batch: Batch) -> Callable[[Array], Array]:
        """See `redline.llm_track.fisher`."""
        return fisher_product(self, batch)

    @torch.no_grad()
    def predict(self, observation: Array) -> Params:
        """Log-probabilities [B, V] of the token after each row of [B, L, 2], in numpy."""
        rows = self.asarray(observation)
        # A state is known by the element that follows it, whatever that is.
        rows = torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
        states = self.hidden(rows, rows[:, -1:, 1] != 0)
        return (host(self.head().log_probs(states[:, 0])),)

    def act(self, observation: Array, rng: np.random.Generator | None) -> Array:
        """See `redline.algorithms.core.contracts.Policy`."""
        raw = self.predict(observation)
        return self.distribution.mode(raw) if rng is None else self.distribution.sample(raw, rng)


def _chosen(log_p: Tensor, action: Tensor) -> Tensor:
    """log pi of one token per row of [n, V]."""
    return log_p.gather(-1, action[:, None])[:, 0]
