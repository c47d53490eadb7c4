"""Fisher-vector products of a causal language model, a micro-batch of rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from redline.algorithms.core.flat import views
from redline.algorithms.core.types import Array, Batch
from redline.llm_track.completions import Part, slices
from redline.llm_track.head import Head, gradient_of

if TYPE_CHECKING:
    from redline.llm_track.policy import CausalLMPolicy


def fisher_product(policy: CausalLMPolicy, batch: Batch) -> Callable[[Array], Array]:
    """v -> F v, the Gauss-Newton product F = mean over the valid elements of J' M J.

    J is the derivative of the logits / temperature by the parameters, M = diag(p) - p p' the
    Fisher matrix of the softmax. J v is a forward derivative of the trunk and, chunk by chunk, of
    the head; J' is a backward pass. F is also the Hessian of the mean KL(old||new) at pi = pi_old.

    A product costs about two forward and backward passes on the batch. Where that is as small as
    one micro-batch its graph is kept, and the products are that much cheaper; the parameters must
    not move between them. The trunk's attention must be eager or sdpa, which has a forward
    derivative in its plain form, used here.

    Args:
        policy: Gives parameters, micro-batches and `fisher_layers`, outside of which F v is 0.
        batch: Elements.

    Raises:
        ValueError: The parameters are below float32, or no name matches `fisher_layers`.
    """
    if policy.parameters.dtype != policy.dtype:
        raise ValueError(
            f"natural steps (npg, trpo) need float32 parameters, and these are "
            f"{policy.parameters.dtype}: the products would be mostly rounding"
        )
    block = _block(policy)
    trunk = {name: slot for name, slot in policy.trunk_slots.items() if slot in block}
    parts = list(policy.parts(batch.observation, policy.ranks.own(batch.mask)))
    count = max(1, int(batch.mask.sum()))
    kept: list[Tensor] = []
    if policy.fit_together(parts):
        with torch.enable_grad():
            kept = [policy.states(part) for part in parts]

    def product(v: Tensor) -> Tensor:
        result = torch.zeros_like(v)
        policy.collect_into(result)
        pieces = list(views(v, policy.tensors))
        direction = {slot: pieces[slot] for slot in block}
        inputs = [policy.tensors[slot] for slot in trunk.values()]
        with policy.learning_head(block) as head:
            moved = _moved(policy, head, direction)
            for i, part in enumerate(parts):
                with torch.enable_grad():
                    states = kept[i] if kept else policy.states(part)
                tangent = _tangent(policy, part, trunk, direction) if trunk else None
                pulled = _through_head(policy, states.detach(), tangent, head, moved, count)
                if inputs:
                    torch.autograd.backward(states, pulled, retain_graph=bool(kept), inputs=inputs)
        policy.ranks.add(result)
        return result

    return product


def _block(policy: CausalLMPolicy) -> set[int]:
    """Positions in `policy.tensors` that the matrix is about."""
    wanted = policy.fisher_layers
    block = {
        slot
        for slot, name in enumerate(policy.names)
        if not wanted or any(part in name for part in wanted)
    }
    if not block:
        raise ValueError(f"no trainable parameter has a name with any of {', '.join(wanted)}")
    return block


def _moved(policy: CausalLMPolicy, head: Head, direction: dict[int, Tensor]) -> Head | None:
    """The direction along which the head's own parameters move, None where they do not."""
    weight, bias = (direction.get(slot) for slot in policy.head_slots)
    if weight is None and bias is None:
        return None
    return Head(torch.zeros_like(head.weight) if weight is None else weight, bias, head.temperature)


def _tangent(
    policy: CausalLMPolicy,
    part: Part,
    trunk: dict[str, int],
    direction: dict[int, Tensor],
) -> Tensor:
    """J v of the last states, [N, D]."""
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), forward_ad.dual_level():
        moving = {
            name: forward_ad.make_dual(  # type: ignore[no-untyped-call]
                policy.tensors[slot].detach(), direction[slot]
            )
            for name, slot in trunk.items()
        }
        dual = forward_ad.unpack_dual(policy.states(part, moving))  # type: ignore[no-untyped-call]
    tangent: Tensor | None = dual.tangent
    assert tangent is not None, "the states depend on every parameter of the trunk"
    return tangent


def _through_head(
    policy: CausalLMPolicy,
    states: Tensor,
    tangent: Tensor | None,
    head: Head,
    moved: Head | None,
    count: int,
) -> Tensor:
    """J' M J v / count of the head: [N, D] for the states; its own part goes to its `grad`."""
    pulled = torch.zeros_like(states)
    for at in slices(len(states), policy.chunk):
        here = states[at].requires_grad_(True)
        with torch.enable_grad():
            logits = head.logits(here)
        with torch.no_grad():
            change = head.tangent(here, None if tangent is None else tangent[at], moved)
            log_p = logits.log_softmax(-1)
            (image,) = policy.distribution.metric(policy.xp, (log_p,), (change,))
        torch.autograd.backward(logits, image / count)
        pulled[at] = gradient_of(here)
    return pulled
