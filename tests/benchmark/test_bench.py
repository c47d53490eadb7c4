"""What `redline bench` measures, with which settings, and what it writes."""

import json
import math
import platform
import subprocess
import sys
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
import pytest
import torch

from redline.algorithms import registry
from redline.algorithms.core import curvature
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.types import Progress
from redline.benchmark import checkpoint, cli, runs
from redline.benchmark.baselines.sb3 import StableBaselines3
from redline.benchmark.bench import comparisons, control, update
from redline.benchmark.bench.comparisons import ROWS
from redline.benchmark.bench.control import Measured, Pair, Timed
from redline.benchmark.config import check, flat_fields
from redline.benchmark.train import make_track
from redline.envs.network import Adam
from redline.envs.tasks import control_task
from redline.envs.track import ControlTrack

NAMES = [
    "ppo/CartPole-v1/zoo",
    "ppo/CartPole-v1/sb3-default",
    "trpo/CartPole-v1/contrib-default",
    "ppo/HalfCheetah-v5/sb3-default",
    "trpo/HalfCheetah-v5/contrib-default",
]
ZOO = NAMES[0]
CONTROL_KEYS = {"name", "ratio_median", "ratio_min", "ratio_max", "repeats"}
UPDATE_KEYS = {
    "name",
    "seconds_median",
    "seconds_min",
    "seconds_max",
    "memory_mb",
    "repeats",
}
BY_NAME = {row.name: row for row in ROWS}


def test_the_rows_are_these_in_this_order():
    assert [row.name for row in ROWS] == NAMES
    assert [row.steps for row in ROWS] == [50_000] * 3 + [40_960] * 2
    # So that what is tested for CartPole holds for HalfCheetah too.
    assert ROWS[3].settings == ROWS[1].settings and ROWS[4].settings == ROWS[2].settings
    assert [row.n_envs for row in ROWS] == [8, 1, 1, 1, 1]


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


def a_run(seconds, steps=1000, start=20.0, end=100.0):
    return Timed(seconds, steps, start, end)


def test_a_row_is_their_time_divided_by_ours():
    repeats = [Pair(a_run(2.0), a_run(6.0)), Pair(a_run(1.0), a_run(5.0)), Pair(a_run(1), a_run(9))]
    assert Measured(ROWS[0], repeats).row() == {
        "name": ZOO,
        "ratio_median": 5.0,
        "ratio_min": 3.0,
        "ratio_max": 9.0,
        "repeats": 3,
    }
    assert a_run(2.0, steps=1000).per_step == pytest.approx(2000.0)


def test_start_and_end_of_a_run_are_tenths_of_its_episodes():
    assert control.ends([1.0, 3.0, *[50.0] * 16, 7.0, 9.0]) == (2.0, 8.0)
    assert control.ends([4.0, 5.0]) == (4.0, 5.0)
    assert all(map(math.isnan, control.ends([])))


class Fake:
    """A contestant on a clock of its own: 100 s to build, 3 to learn, 50 to close."""

    def __init__(self, name, clock, calls):
        self.name, self.clock, self.calls = name, clock, calls
        self.steps, self.returns = 10, [1.0]

    def __call__(self, resolved, stack):
        self.clock[0] += 100.0
        self.calls.append((self.name, resolved.run.seed, resolved.run.steps))
        stack.callback(lambda: self.clock.__setitem__(0, self.clock[0] + 50.0))
        return self

    def learn(self):
        self.clock[0] += 3.0


def test_sides_alternate_after_a_warm_up_and_only_learning_is_timed(monkeypatch):
    clock, calls = [0.0], []
    monkeypatch.setattr(control.time, "process_time", lambda: clock[0])
    both = (Fake("ours", clock, calls), Fake("theirs", clock, calls))
    found = list(control.pairs(ROWS[0], 3, sides=both))
    assert calls[:2] == [("ours", 0, 2048), ("theirs", 0, 2048)]
    order = [name for name, _, _ in calls[2:]]
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert [seed for _, seed, _ in calls[2:]] == [0, 0, 1, 1, 2, 2]
    assert {steps for _, _, steps in calls[2:]} == {50_000}
    assert [(pair.ours.seconds, pair.theirs.seconds) for pair in found] == [(3.0, 3.0)] * 3


def test_our_timed_part_logs_every_update_and_neither_evaluates_nor_saves(monkeypatch):
    logged = []
    log = runs.RunFolder.log

    def counted(self, *args):
        logged.append(self._tensorboard)
        log(self, *args)

    def never(*args):
        raise AssertionError("not a part of learning")

    monkeypatch.setattr(runs.RunFolder, "log", counted)
    monkeypatch.setattr(ControlTrack, "evaluate", never)
    monkeypatch.setattr(checkpoint, "save", never)
    found = control.timed(control.redline, BY_NAME[ZOO].resolved(0, 1024))
    assert found.steps == 1024 and len(logged) == 4 and None not in logged
    assert found.start > 5


def test_control_end_to_end(tmp_path, capsys):
    table, report = tmp_path / "control.json", tmp_path / "control.md"
    arguments = ["--only", ZOO, "--steps", "300", "--repeats", "1"]
    files = ["--json", str(table), "--report", str(report)]
    assert cli.main(["bench", "control", *arguments, *files]) == 0
    (row,) = json.loads(table.read_text())
    assert set(row) == CONTROL_KEYS
    assert (row["name"], row["repeats"]) == (ZOO, 1)
    assert row["ratio_min"] == row["ratio_median"] == row["ratio_max"] > 0
    shown, text = capsys.readouterr().out, report.read_text()
    assert f"{ZOO} 1/1: redline" in shown and f"| {ZOO} | {row['ratio_median']:.2f} [" in text
    assert "redline bench control --repeats 1 --steps 300 --only ppo/CartPole-v1/zoo" in text
    for part in (f"torch {torch.__version__}", "n_steps 32", "lr 0.001", " cores, "):
        assert part in text
    for private in (str(tmp_path), platform.node(), "/tmp"):
        assert private not in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["control.json", "control.md"]


def test_an_interruption_keeps_the_rows_that_are_complete(tmp_path, monkeypatch):
    def pairs(comparison, repeats, steps):
        yield Pair(a_run(1.0), a_run(4.0))
        if comparison is not ROWS[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(control, "pairs", pairs)
    table = tmp_path / "control.json"
    assert cli.main(["bench", "control", "--json", str(table)]) == 130
    assert [row["name"] for row in json.loads(table.read_text())] == [ZOO]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("nothing", "unknown part 'nothing'"),
        ("control --only ppo/CartPole", "unknown row 'ppo/CartPole'; nearest: ppo/CartPole-v1/zoo"),
        ("control --repeats 0", "repeats must be at least 1, got 0"),
        ("control --steps 0", "steps must be at least 1, got 0"),
        ("control --json absent/x.json", "--json absent/x.json: the folder absent does not exist"),
        ("control --report folder", "--report folder is a folder; give the path of a file"),
        ("update --repeats 0", "repeats must be at least 1, got 0"),
        ("update --only tropo", "unknown method 'tropo'; nearest: trpo"),
        ("update --json absent/x.json", "the folder absent does not exist"),
        ("update --task Nope-v0", "unknown task 'Nope-v0'"),
    ],
)
def test_bad_input_is_said_before_any_work(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(control, "timed", None)
    monkeypatch.setattr(update, "measure", None)
    assert cli.main(["bench", *arguments.split()]) == 2
    assert sentence in capsys.readouterr().err


def test_a_folder_without_permission_and_a_missing_library(tmp_path, monkeypatch, capsys):
    from redline.benchmark.bench import output
    from redline.benchmark.commands import bench

    with monkeypatch.context() as patch:
        patch.setattr(output.os, "access", lambda *_: False)
        assert cli.main(["bench", "control", "--json", str(tmp_path / "x.json")]) == 2
    assert "cannot write to the folder" in capsys.readouterr().err
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    monkeypatch.setattr(control, "timed", None)
    assert cli.main(["bench", "control"]) == 2
    assert "pip install stable-baselines3 sb3-contrib" in capsys.readouterr().err


def test_help_does_not_wait_for_heavy_libraries():
    probe = (
        "import sys; from redline.benchmark import cli; cli.main(['bench', '--help']);"
        "print(*(name for name in sys.modules if '.' not in name))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    usage, _, modules = done.stdout.rstrip().rpartition("\n")
    assert "redline bench control" in usage and "redline bench update" in usage
    heavy = {"torch", "numpy", "gymnasium", "stable_baselines3", "tyro", "pandas", "tensorboard"}
    assert not heavy & set(modules.split())


@pytest.fixture(scope="module")
def small():
    """Networks of one layer and a rollout of about 256 elements."""
    networks = update.Networks(control_task("CartPole-v1"), hidden=(64,))
    return networks, update.rollout(networks.task, networks.policy(), elements=256)


def test_the_rollout_is_whole_episodes_in_groups():
    networks = update.Networks(control_task("HalfCheetah-v5"))
    on = update.rollout(networks.task, networks.policy())
    assert on.mask.shape == (16, 128) and on.mask.all() and on.steps == update.ELEMENTS == 2048
    assert on.whole_episodes and on.truncated.sum() == 16
    assert np.bincount(on.group_of_episode).tolist() == [4] * 4
    algorithm = update.resolved("ppo", "HalfCheetah-v5").recipe.build()
    learner = Learner(algorithm, networks.policy(), networks.critic(), np.random.default_rng(0))
    assert learner.update(on, Progress(0, 1))["train/n_updates"] == 320


def test_a_task_that_ends_early_plays_more_episodes(small):
    _, on = small
    assert 150 < on.steps < 500 and len(on.episode_return) > 4
    assert on.whole_episodes and set(np.bincount(on.group_of_episode)) == {4}


@pytest.mark.parametrize("name", registry.names())
def test_every_method_learns_from_the_rollout(name, small):
    found = update.measure(name, *small, repeats=1)
    assert set(found.row("CartPole-v1")) == UPDATE_KEYS
    assert found.seconds[0] > 0 and found.memory_mb > 0


def test_a_dense_fisher_matrix_takes_more_memory_and_time(small):
    dense, cg = (update.measure(name, *small, repeats=2) for name in ("trpo--solver=dense", "trpo"))
    size = small[0].policy().parameters.size
    assert dense.memory_mb > cg.memory_mb + 0.5 * size * size * 8 / 2**20
    assert dense.median > cg.median
    assert (len(dense.seconds), len(cg.seconds)) == (1, 2)


def test_every_repeat_starts_from_the_same_state(small, monkeypatch):
    seen = []

    def seconds(learner, on):
        before = learner.policy.snapshot(), learner.critic.snapshot()
        learner.update(on, Progress(0, on.steps))
        seen.append((*before, learner.policy.snapshot(), learner.critic.snapshot()))
        return 1.0

    monkeypatch.setattr(update, "_seconds", seconds)
    update.measure("ppo", *small, repeats=2)
    assert len(seen) == 3
    for state in zip(*seen, strict=True):
        assert all(np.array_equal(state[0], other) for other in state)
    assert not np.array_equal(seen[0][0], seen[0][2])


def test_update_end_to_end_says_what_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(curvature, "MAX_DENSE_PARAMETERS", 10)
    table = tmp_path / "update.json"
    only = ["--only", "reinforce", "ppo", "npg--solver=dense"]
    arguments = ["--task", "CartPole-v1", "--repeats", "1", "--json", str(table), *only]
    assert cli.main(["bench", "update", *arguments]) == 0
    rows = json.loads(table.read_text())
    assert {row["name"] for row in rows} == {
        "update/CartPole-v1/ppo",
        "update/CartPole-v1/reinforce",
    }
    assert all(set(row) == UPDATE_KEYS for row in rows)
    shown = capsys.readouterr().out
    assert "npg--solver=dense: refused, solver dense takes at most 10 parameters" in shown
    assert "x ppo" in shown and "MiB: most memory" in shown


def test_dense_is_measured_beside_every_solver():
    found = update.names()
    assert [name for name in found if not name.endswith(update.DENSE)] == registry.names()
    assert {"npg--solver=dense", "trpo--solver=dense"} <= set(found)
    assert comparisons.chosen([NAMES[3], ZOO]) == [ROWS[0], ROWS[3]]
