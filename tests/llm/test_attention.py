"""The clip of attention logits, and ratios weighted by attention, against small cases by hand."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from closeness import close
from torch.nn.functional import scaled_dot_product_attention

from redline.algorithms.core.types import Need
from redline.llm_track.attention import AttentionClip, attention, install
from redline.llm_track.models import tiny_model
from redline.llm_track.pretrained import ModelError
from redline.llm_track.settings import LanguageSettings
from redline.llm_track.track import LanguageTrack, language_track

NEED = Need(groups=4, group_size=2)


def track(**settings: Any) -> LanguageTrack:
    few = LanguageSettings(max_completion=24, eval_problems=4, eval_samples=1, **settings)
    return language_track("llm:arithmetic", few, needs_critic=False, seed=0)


def tensors(seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(2, 4, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8)]
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)


class Layer:
    layer_idx = 0


def test_without_a_clip_it_is_the_usual_attention() -> None:
    query, key, value = tensors()
    found, weights = attention(Layer(), query, key, value, None, 8**-0.5)
    expected = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    close(found, expected.transpose(1, 2), rtol=1e-6, atol=1e-6)
    close(weights.sum(-1), torch.ones(2, 4, 5), atol=1e-6)


def test_a_model_with_it_gives_the_same_states() -> None:
    plain = tiny_model(0).eval()
    ours = copy.deepcopy(plain)
    install(ours, None)
    tokens = torch.randint(3, 12, (2, 9), generator=torch.Generator().manual_seed(0))
    real = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9])
    states = [m.base_model(tokens, attention_mask=real).last_hidden_state for m in (plain, ours)]
    close(states[0][real != 0], states[1][real != 0], atol=2e-5)


def test_bounds_by_hand() -> None:
    clip = AttentionClip(1, 2, width=1.0)
    # Two heads; the last key is hidden. Head 0 has 1 and 3 (mean 2, std 1), head 1 has 5 and 5.
    logits = torch.tensor([[[[1.0, 3.0, 99.0]], [[5.0, 5.0, -99.0]]]])
    seen = torch.tensor([[[[True, True, False]]]])
    clip.observing = True
    assert clip.apply(0, logits, seen) is logits  # there is no history yet
    clip.observing = False
    assert clip.bounds(0) is None  # frozen until it is committed
    clip.commit()
    low, high = clip.bounds(0) or ((), ())
    close(low, [1.0, 5.0])
    close(high, [3.0, 5.0])
    held = clip.apply(0, torch.tensor([[[[-4.0, 2.0, 9.0]], [[4.0, 5.0, 6.0]]]]), seen)
    close(held, torch.tensor([[[[1.0, 2.0, 3.0]], [[5.0, 5.0, 5.0]]]]))
    again = AttentionClip(1, 2, width=1.0)
    again.load_state_dict(clip.state_dict())
    close(again.bounds(0)[0], low)  # type: ignore[index]


def test_no_weight_exceeds_another_by_more_than_the_width_allows() -> None:
    clip = AttentionClip(1, 4, width=1.0)
    layer = Layer()
    layer.redline_attention_clip = clip  # type: ignore[attr-defined]
    query, key, value = tensors()
    clip.observing = True
    attention(layer, query, key, value, None, 3.0)
    clip.observing = False
    clip.commit()
    low, high = clip.bounds(0) or ((), ())
    _, weights = attention(layer, query, key, value, None, 3.0)
    last = weights[:, :, -1]
    spread = (last.amax(-1) / last.amin(-1)).log().amax(0)
    assert (spread <= torch.tensor(high - low) + 1e-5).all()


def test_statistics_move_between_rounds_and_the_ratio_starts_at_one() -> None:
    made = track(attention_clip=1.0)
    assert made.clip is not None
    made.advance(made.policy, 0.0)
    made.collect(made.policy, NEED)
    before = made.clip.bounds(0)
    made.advance(made.policy, 0.5)
    assert before is None or not np.array_equal(before[0], made.clip.bounds(0)[0])  # type: ignore
    rollout = made.collect(made.policy, NEED)
    from redline.llm_track.checks import _batch

    scored = made.policy.evaluate(_batch(made.policy, rollout)).log_prob.numpy()
    close(scored[rollout.mask], rollout.sampled_log_prob[rollout.mask], atol=1e-4)
    state = made.state_dict()
    other = track(attention_clip=1.0)
    other.load_state_dict(state)
    close(other.clip.bounds(1)[1], made.clip.bounds(1)[1])  # type: ignore[union-attr, index]


def test_what_is_given_is_one_and_what_is_received_is_not() -> None:
    for reading in ("given", "received"):
        made = track(ratio_weight=reading)
        rollout = made.collect(made.policy, NEED)
        assert rollout.log_prob is not None and rollout.sampled_log_prob is not None
        shift = (rollout.sampled_log_prob - rollout.log_prob)[rollout.mask]
        if reading == "given":
            close(shift, np.zeros_like(shift), atol=1e-5)
        else:
            weight = np.where(
                rollout.mask, np.exp(rollout.sampled_log_prob - rollout.log_prob), 0.0
            )
            close(weight.sum(1) / rollout.mask.sum(1), np.ones(len(weight)), rtol=1e-6)
            assert np.abs(shift).max() > 0.5
            last = rollout.mask.sum(1) - 1
            rows = np.arange(len(weight))
            # The last token is looked at by itself alone, and never by more than its whole.
            assert (weight[rows, last] < weight[rows, 0]).all()


def test_received_attention_by_hand() -> None:
    from types import SimpleNamespace

    from redline.llm_track.ratio_weights import weights

    # One head, padding first; rows are queries. Columns of real queries sum to 1.7, 0.9, 0.4.
    given = [[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0.5, 0.5, 0], [0, 0.2, 0.4, 0.4]]
    output = SimpleNamespace(attentions=[torch.tensor([[given]])])
    model = SimpleNamespace(
        device="cpu",
        config=SimpleNamespace(num_hidden_layers=1, num_attention_heads=1),
        base_model=lambda **_: output,
    )
    observation = np.stack([np.array([[7, 7, 8, 9]]), np.array([[0, 1, 1, 1]])], axis=-1)
    rollout: Any = SimpleNamespace(observation=observation, mask=np.array([[True, True]]))
    close(weights(model, rollout, "received"), [[0.9 / 0.65, 0.4 / 0.65]], rtol=1e-6)
    close(weights(model, rollout, "given"), [[1.0, 1.0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"attention_clip": 0.0}, "attention_clip must be above 0, got 0"),
        (
            {"attention_clip": 1.0, "stale": 1, "sampler_process": True},
            "sampler_process must be off with attention_clip",
        ),
    ],
)
def test_what_does_not_fit_is_told(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        track(**settings)
