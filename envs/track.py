"""Everything that one control run needs, behind the interface that the training loop knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from redline.algorithms.core.contracts import Critic, Policy
from redline.algorithms.core.types import Need, Rollout
from redline.envs.evaluate import Evaluator
from redline.envs.network import Activation
from redline.envs.policies import MLPCritic, MLPPolicy
from redline.envs.sampler import ControlSampler, SamplerSettings
from redline.envs.tasks import ControlTask


@dataclass(frozen=True)
class NetworkSettings:
    """Policy and critic.

    Attributes:
        kind: "mlp" (numpy) or "torch" (autograd).
        device: Of a torch policy.
        hidden: Widths of the hidden layers.
        activation: Of the hidden layers.
        log_std_init: Initial log standard deviation on Box actions.
    """

    kind: Literal["mlp", "torch"] = "mlp"
    device: str = "cpu"
    hidden: Sequence[int] = (64, 64)
    activation: Activation = "tanh"
    log_std_init: float = 0.0


@dataclass
class ControlTrack:
    """Policy, critic, sampler and evaluator of one run.

    Attributes:
        task: What is played.
        policy: Acts and learns.
        critic: V, None when the method has none.
        sampler: Source of rollouts.
        evaluator: Fixed episodes.
        unit: What a step of the x-axis is.
    """

    task: ControlTask
    policy: Any
    critic: Critic | None
    sampler: ControlSampler
    evaluator: Evaluator
    unit: str = field(default="environment steps", init=False)

    def advance(self, policy: Policy, fraction: float) -> None:
        """Nothing here changes with the share of the budget that is spent."""

    def collect(self, policy: Policy, need: Need) -> Rollout:
        """One rollout of the policy."""
        return self.sampler.collect(policy, need)

    def texts(self, rollout: Rollout, rows: Sequence[int]) -> list[tuple[str, str]]:
        """None: an episode of a control task has no text."""
        return []

    def evaluate(self, policy: Policy) -> dict[str, float]:
        """Mean raw return over the fixed episodes, deterministic and stochastic."""
        return {
            "eval/mean_reward": float(np.mean(self.evaluator.returns(policy, True))),
            "eval/mean_reward_stochastic": float(np.mean(self.evaluator.returns(policy, False))),
        }

    def state_dict(self) -> dict[str, Any]:
        """Normaliser statistics."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.sampler.load_state_dict(state)

    @property
    def left_out(self) -> dict[str, str]:
        """None: no start of an episode is passed over."""
        return {}

    @property
    def exact(self) -> bool:
        """A run goes on from `progress` bit for bit; otherwise its episodes start anew."""
        return self.sampler.exact

    def progress(self) -> dict[str, Any]:
        """What the next rollout depends on besides policy and statistics."""
        return self.sampler.progress()

    def resume(self, progress: dict[str, Any]) -> None:
        """Go on from `progress`."""
        self.sampler.resume(progress)

    def close(self) -> None:
        """Release the environments."""
        self.sampler.close()
        self.evaluator.close()


def control_track(
    task: ControlTask,
    *,
    networks: NetworkSettings,
    sampling: SamplerSettings,
    needs_critic: bool,
    eval_episodes: int,
    seed: int,
) -> ControlTrack:
    """Build all parts of a run from one seed; each part has its own stream of random numbers.

    Raises:
        TaskError: The device of a torch policy is not there.
    """
    init, critic_init, noise, env_seed = np.random.SeedSequence(seed).spawn(4)
    make_policy, make_critic = _makers(networks)
    policy = make_policy(
        task.observation_size,
        task.distribution,
        networks.hidden,
        networks.activation,
        np.random.default_rng(init),
        networks.log_std_init,
    )
    critic = (
        make_critic(
            task.observation_size,
            networks.hidden,
            networks.activation,
            np.random.default_rng(critic_init),
        )
        if needs_critic
        else None
    )
    first_env_seed = int(env_seed.generate_state(1)[0] % 2**31)
    sampler = ControlSampler(task, sampling, np.random.default_rng(noise), first_env_seed)
    evaluator = Evaluator(task, eval_episodes, sampler.normalise)
    return ControlTrack(task, policy, critic, sampler, evaluator)


def _makers(networks: NetworkSettings) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What makes the policy, and what makes the critic."""
    if networks.kind == "mlp":
        return MLPPolicy, MLPCritic
    # Only here, so that a numpy run does not wait for torch.
    from redline.envs.torch_policies import TorchCritic, TorchPolicy, require_device

    device = require_device(networks.device)
    return partial(TorchPolicy.mlp, device=device), partial(TorchCritic.mlp, device=device)
