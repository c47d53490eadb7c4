"""Fisher-vector products of a causal language model, a micro-batch of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

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


# Activations, their gradients, and what the derivative of these needs, in units of the first.
_GRAPHS = 3


class _Kept(NamedTuple):
    """States [N, D] of a part, some u like them, and J' u per parameter, with their graphs."""

    states: Tensor
    u: Tensor
    gradient: tuple[Tensor, ...]

    def along(self, direction: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """The states and J v of them: the derivative by u of (J' u)' v."""
        (found,) = torch.autograd.grad(self.gradient, self.u, direction, retain_graph=True)
        return self.states, found


def _keep(policy: CausalLMPolicy, part: Part, leaves: Sequence[Tensor]) -> _Kept:
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        states = policy.states(part)
        u = torch.zeros_like(states).requires_grad_(True)
        return _Kept(states, u, torch.autograd.grad(states, leaves, u, create_graph=True))


def fisher_product(policy: CausalLMPolicy, batch: Batch) -> Callable[[Array], Array]:
    """v -> F v, the Gauss-Newton product F = mean over the valid elements of J' M J.

    J is the derivative of the logits / temperature by the parameters, M = diag(p) - p p' the
    Fisher matrix of the softmax. J v is a forward derivative of the trunk and, chunk by chunk, of
    the head; J' is a backward pass. F is also the Hessian of the mean KL(old||new) at pi = pi_old.

    A product costs about two forward and backward passes on the batch. Where a third of a
    micro-batch holds the batch, the graphs of its states and of their gradient J' u are kept. That
    gradient is linear in u, and its derivative by u along v is J v: one more backward pass, which
    takes less time than the forward derivative. The parameters must not move between products.
    The trunk's attention must be eager or sdpa, whose plain form, used here, has both derivatives.

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
    leaves = [policy.tensors[slot] for slot in trunk.values()]
    kept: list[_Kept] = []
    # With recomputed activations a graph holds too little to be differentiated twice.
    recomputes = policy.model.is_activation_checkpointing
    if leaves and not recomputes and policy.fit_together(parts, copies=_GRAPHS):
        kept = [_keep(policy, part, leaves) for part in parts]

    def product(v: Tensor) -> Tensor:
        result = torch.zeros_like(v)
        policy.collect_into(result)
        pieces = list(views(v, policy.tensors))
        direction = {slot: pieces[slot] for slot in block}
        with policy.learning_head(block) as head:
            moved = _moved(policy, head, direction)
            for i, part in enumerate(parts):
                states, tangent = (
                    kept[i].along([direction[slot] for slot in trunk.values()])
                    if kept
                    else _anew(policy, part, trunk, direction)
                )
                pulled = _through_head(policy, states.detach(), tangent, head, moved, count)
                if leaves:
                    torch.autograd.backward(states, pulled, retain_graph=bool(kept), inputs=leaves)
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


def _anew(
    policy: CausalLMPolicy,
    part: Part,
    trunk: dict[str, int],
    direction: dict[int, Tensor],
) -> tuple[Tensor, Tensor | None]:
    """The last states [N, D] with their graph, and J v of them, None where no v moves them."""
    with torch.enable_grad():
        states = policy.states(part)
    if not trunk:
        return states, None
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
    return states, tangent


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
