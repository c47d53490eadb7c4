"""The two tracks as commands and reports tell them apart: by the name of the task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from redline.algorithms.core.actions import Action
from redline.benchmark.errors import BadInput
from redline.llm_track.settings import LanguageSettings

# Tasks of the language track start with it.
PREFIX = "llm:"
_PACKAGES = ("transformers", "tokenizers", "safetensors", "huggingface_hub")

DETERMINISTIC = "eval/mean_reward"
STOCHASTIC = "eval/mean_reward_stochastic"
ACCURACY = "eval/accuracy"
ACCURACY_GREEDY = "eval/accuracy_greedy"


@dataclass(frozen=True)
class RunConfig:
    """Settings of a run that belong to no algorithm, on either track.

    Attributes:
        task: Gymnasium id, also `pkg.module:Env-v0`, or `llm:NAME` for a language model.
        seed: Seeds 0.. are for reports, 1000.. for tuning.
        steps: Budget: environment steps, or sampled completions.
        out: Folder of this run; None: results/run/<task>/<algo>/seed=<seed>.
        overwrite: Replace a run that is there already.
        resume: Go on with a run of the same settings that was cut; otherwise it starts anew.
        evals: Evaluations after the one at step 0, evenly spaced, the last at the end; 0 is as 1,
            for a report needs the first and the last.
        tensorboard: Write TensorBoard events beside metrics.jsonl.
        plugin: Python files that register more algorithms.
        breaker: What happens when an update goes too far (80% of the ratios outside [0.8, 1.2],
            KL(old||new) above 0.5, or nan): "stop" (go back to the last checkpoint and end the
            run), "rollback" (go back and on; ends after 5 in a row), "continue-smaller" (likewise,
            with a quarter of the step), "record" (note it in run.json) or "off". It changes
            nothing in a run that never does.
        telemetry: "basic", or "full": also the gradient norm of every layer, ten actions of the
            first round that are followed, what the clip takes from the gradient, and the memory of
            every phase. It changes nothing either.
    """

    task: str
    seed: int = 0
    steps: int = 100_000
    out: Path | None = None
    overwrite: bool = False
    resume: bool = True
    evals: int = 10
    tensorboard: bool = True
    plugin: tuple[Path, ...] = ()
    breaker: Action = "stop"
    telemetry: Literal["basic", "full"] = "basic"


@dataclass(frozen=True)
class ControlConfig(RunConfig):
    """Settings of a run on a control task.

    Attributes:
        steps: Environment steps.
        eval_episodes: Episodes per evaluation, each from its own fixed seed.
        n_envs: Environments side by side.
        vectorization: "list" (a loop, fastest for cheap tasks), "sync" (SyncVectorEnv) or "vector"
            (the task's own vector environment).
        policy: "mlp" (numpy, fastest on a CPU) or "torch" (autograd, any device).
        device: Device of the torch policy and critic.
        hidden: Widths of the hidden layers of policy and critic.
        activation: Of the hidden layers.
        log_std_init: Initial log standard deviation on Box actions.
        action_bound: How Box actions keep to their bounds: "clip" cuts off what is sampled outside,
            "tanh" samples inside (a squashed normal distribution; the bounds must be finite).
        normalize_observation: Running mean and std, frozen at evaluation.
        normalize_reward: Divide rewards by the running std of the discounted return.
    """

    steps: int = 100_000
    eval_episodes: int = 20
    n_envs: int = 8
    vectorization: Literal["list", "sync", "vector"] = "list"
    policy: Literal["mlp", "torch"] = "mlp"
    device: str = "cpu"
    hidden: tuple[int, ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "tanh"
    log_std_init: float = 0.0
    action_bound: Literal["clip", "tanh"] = "clip"
    normalize_observation: bool = False
    normalize_reward: bool = False


@dataclass(frozen=True)
class LanguageConfig(LanguageSettings, RunConfig):
    """Settings of a run on a language task.

    Attributes:
        steps: Sampled completions.
        evals: Evaluations after the one at step 0, evenly spaced, the last at the end; 0 is as 1,
            for a report needs the first and the last.
        review_every: Every so many updates 20 completions are kept for redline review; 0: never.
    """

    steps: int = 10_240
    evals: int = 4
    review_every: int = 10


@dataclass(frozen=True)
class Track:
    """What differs between the tracks outside of the training loop.

    Attributes:
        name: As sentences say it.
        config: Settings of its runs.
        unit: What a step is.
        size: The setting that says how much an evaluation plays.
        headline: Metric of an evaluation that methods are judged by.
        second: The other one that is shown.
        untrained: Metric whose value at step 0 is that of the policy before training.
        measure: What both are.
        quantity: The same in short.
        policies: What acts in the headline and in the second metric.
        digits: Decimals that are worth showing.
        packages: What its results depend on besides what all do.
    """

    name: str
    config: type[RunConfig]
    unit: str
    size: str
    headline: str
    second: str
    untrained: str
    measure: str
    quantity: str
    policies: tuple[str, str]
    digits: int
    packages: tuple[str, ...] = ()

    @property
    def other(self) -> str:
        """What acts in the second metric, in a word."""
        return self.policies[1].partition(" ")[0]

    def show(self, last: Mapping[str, float]) -> list[str]:
        """Name and value of what is shown of an evaluation, the headline first."""
        names = [name for name in (self.headline, self.second) if name in last]
        return [f"{name} {last[name]:.{self.digits}f}" for name in names]


CONTROL = Track(
    name="control",
    config=ControlConfig,
    unit="environment steps",
    size="eval_episodes",
    headline=DETERMINISTIC,
    second=STOCHASTIC,
    untrained=STOCHASTIC,
    measure="mean reward per episode",
    quantity="mean reward",
    policies=("deterministic policy", "stochastic policy"),
    digits=1,
)
LANGUAGE = Track(
    name="language",
    config=LanguageConfig,
    unit="completions",
    size="eval_problems",
    headline=ACCURACY,
    second=ACCURACY_GREEDY,
    untrained=ACCURACY,
    measure="accuracy on held-out problems",
    quantity="accuracy",
    policies=("sampled answers", "greedy answers"),
    digits=3,
    packages=("transformers", "tokenizers", "reasoning-gym"),
)


TRACKS = (CONTROL, LANGUAGE)


def require_language_packages(what: str) -> None:
    """Refuse, with the way to install them, what needs packages that are not there.

    Raises:
        BadInput: One is missing.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise BadInput(f'{what} needs {", ".join(missing)}: pip install "redline-rl[llm]"')


def track_of(task: str) -> Track:
    """The track that a task belongs to."""
    return LANGUAGE if task.startswith(PREFIX) else CONTROL


def other_than(track: Track) -> Track:
    """The one that it is not."""
    return CONTROL if track is LANGUAGE else LANGUAGE
