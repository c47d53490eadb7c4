"""Both libraries of `redline bench control` train at the same settings, number by number."""

from contextlib import ExitStack
from itertools import pairwise

import numpy as np
import pytest
import torch

from redline.algorithms.core.types import Progress
from redline.benchmark.baselines.sb3 import StableBaselines3
from redline.benchmark.bench import control
from redline.benchmark.bench.comparisons import ROWS
from redline.benchmark.checking import check
from redline.benchmark.config import flat_fields
from redline.benchmark.train import make_track
from redline.envs.network import Adam

BY_NAME = {row.name: row for row in ROWS}
NAMES = list(BY_NAME)


def test_the_rows_of_halfcheetah_have_the_settings_of_cartpole():
    # Only the latter are run here: see the optimiser steps below.
    assert ROWS[3].settings == ROWS[1].settings and ROWS[4].settings == ROWS[2].settings


@pytest.mark.parametrize("name", NAMES)
def test_no_default_of_ours_decides(name):
    resolved = BY_NAME[name].resolved(0)
    check(resolved)
    assert set(BY_NAME[name].settings) == set(flat_fields(resolved.recipe))


@pytest.fixture(params=NAMES, scope="module")
def sides(request):
    """Our settings and track, and the other library's model."""
    resolved = BY_NAME[request.param].resolved(0)
    theirs, track = StableBaselines3(resolved), make_track(resolved, resolved.recipe.build())
    yield resolved, track, theirs.model
    theirs.close()
    track.close()


# The published numbers, as attributes of the other library's model.
PUBLISHED = {
    "ppo": {
        "n_steps": 2048,
        "batch_size": 64,
        "n_epochs": 10,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "max_grad_norm": 0.5,
        "ent_coef": 0.0,
        "vf_coef": 0.5,
        "target_kl": None,
        "normalize_advantage": True,
        "n_envs": 1,
    },
    "trpo": {
        "n_steps": 2048,
        "batch_size": 128,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "n_critic_updates": 10,
        "cg_max_steps": 15,
        "cg_damping": 0.1,
        "line_search_shrinking_factor": 0.8,
        "line_search_max_iter": 10,
        "target_kl": 0.01,
        "sub_sampling_factor": 1,
        "normalize_advantage": True,
        "n_envs": 1,
    },
}
OF_ZOO = {"n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8}


def test_both_sides_have_the_published_numbers(sides):
    resolved, _, model = sides
    zoo = resolved.run.n_envs == 8
    expected = PUBLISHED[resolved.algo] | (OF_ZOO | {"n_envs": 8} if zoo else {})
    assert {name: getattr(model, name) for name in expected} == expected
    algorithm = resolved.recipe.build()
    rule, critic, n_envs = algorithm.update, algorithm.critic, resolved.run.n_envs
    ours = {
        "n_steps": algorithm.need.steps,
        "n_envs": n_envs,
        "gamma": algorithm.advantage.gamma,
        "gae_lambda": algorithm.advantage.lam,
        "batch_size": critic.minibatch_size,
        "normalize_advantage": algorithm.standardise != "none",
    }
    if resolved.algo == "ppo":
        assert (rule.minibatch_size, rule.epochs) == (critic.minibatch_size, critic.epochs)
        ours |= {
            "n_epochs": rule.epochs,
            "max_grad_norm": rule.max_grad_norm,
            "ent_coef": algorithm.penalties.entropy,
            "vf_coef": critic.coef,
            "target_kl": rule.target_kl,
        }
    else:
        assert resolved.recipe.kl_convention == "sb3"
        ours |= {
            "n_critic_updates": critic.epochs,
            "cg_max_steps": rule.fisher.cg_iterations,
            "cg_damping": rule.fisher.damping,
            "line_search_shrinking_factor": rule.backtrack,
            "line_search_max_iter": rule.max_backtracks,
            "target_kl": rule.delta,
            "sub_sampling_factor": 1 if rule.fisher.fisher_rows is None else None,
        }
        assert rule.fisher.solver == "cg" and not rule.delta_decay
    assert ours == expected
    assert model.policy.optimizer.defaults["eps"] == critic.adam_eps


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_the_clip_is_the_same_at_every_point_of_the_run(sides, share):
    resolved, _, model = sides
    if resolved.algo == "ppo":
        clip = resolved.recipe.build().clip.bounds(Progress(int(10_000 * share), 10_000))
        theirs = model.clip_range(1.0 - share)
        assert clip == pytest.approx((1.0 - theirs, 1.0 + theirs), abs=1e-12)
        assert theirs == pytest.approx(0.2 * ((1.0 - share) if resolved.run.n_envs == 8 else 1.0))


def test_networks_and_their_initial_weights_are_the_same(sides):
    resolved, track, model = sides
    extractor = model.policy.mlp_extractor
    pairs = (
        (track.policy.network, [*extractor.policy_net, model.policy.action_net]),
        (track.critic.network, [*extractor.value_net, model.policy.value_net]),
    )
    for ours, theirs in pairs:
        linear = [part for part in theirs if isinstance(part, torch.nn.Linear)]
        between = {type(part) for part in theirs} - {torch.nn.Linear}
        assert between == {torch.nn.Tanh} and ours.activation == "tanh"
        weights = [part.weight.detach().numpy().T for part in linear]
        assert [w.shape for w in weights] == list(pairwise(ours.sizes))
        for mine, weight, part in zip(ours._weights[::2], weights, linear, strict=True):
            # Orthogonal matrices times a gain: all singular values are the gain.
            singular = (np.linalg.svd(w, compute_uv=False) for w in (mine, weight))
            assert np.allclose(*singular, rtol=1e-4)
            assert not part.bias.detach().numpy().any()
        assert not any(bias.any() for bias in ours._weights[1::2])
    if "HalfCheetah" in resolved.run.task:
        theirs = model.policy.log_std.detach().numpy()
        assert np.array_equal(track.policy._log_std, theirs)


@pytest.mark.parametrize("name", NAMES[:3])
def test_both_sides_make_the_same_optimiser_steps_at_the_same_rates(name, monkeypatch):
    row = BY_NAME[name]
    rollout = row.n_envs * row.settings["n_steps"]
    resolved = row.resolved(0, 4 * rollout if row.n_envs == 8 else rollout)
    ours: dict[int, list[float]] = {}
    theirs: list[float] = []
    step, torch_step = Adam.step, torch.optim.Adam.step

    def spy(self, lr):
        ours.setdefault(id(self), []).append(lr)
        step(self, lr)

    def torch_spy(self, *args, **more):
        theirs.append(self.param_groups[0]["lr"])
        return torch_step(self, *args, **more)

    monkeypatch.setattr(Adam, "step", spy)
    monkeypatch.setattr(torch.optim.Adam, "step", torch_spy)
    steps = []
    for enter in (control.redline, control.stable_baselines3):
        with ExitStack() as stack:
            contestant = enter(resolved, stack)
            contestant.learn()
            steps.append(contestant.steps)
    assert steps == [resolved.run.steps] * 2
    expected = {"zoo": 20, "sb3-default": 320, "contrib-default": 160}[row.variant]
    rounds = resolved.run.steps // rollout
    assert len(theirs) == expected * rounds
    # Policy and critic step together there; here each has its own optimiser.
    assert len(ours) == (2 if row.algo == "ppo" else 1)
    rate = 1e-3 if row.variant != "sb3-default" else 3e-4
    left = [1.0 - k / rounds if row.variant == "zoo" else 1.0 for k in range(rounds + 1)]
    for rates in ours.values():
        assert rates == pytest.approx(np.repeat(left[:-1], expected) * rate)
    # Their schedule is read after a rollout, ours before it.
    assert theirs == pytest.approx(np.repeat(left[1:], expected) * rate)
