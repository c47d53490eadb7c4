"""Settings of other libraries' methods, under those libraries' own names and with their defaults.

What the libraries offer and this lacks: gSDE (`use_sde`), since an evaluation samples every action
by itself, and schedules other than the linear one.
"""

from __future__ import annotations

from dataclasses import dataclass

# A number, or rl-zoo's "lin_" and a number, which falls from there to 0 over the budget.
Rate = float | str
_LINEAR = "lin_"


@dataclass(frozen=True)
class StableBaselines3PPO:
    """PPO of Stable-Baselines3.

    Attributes:
        learning_rate: Of Adam, for policy and critic; lin_0.001 falls from 0.001 to 0.
        n_steps: Steps of each environment per rollout.
        batch_size: Elements per optimiser step; the last step of an epoch takes what is left.
        n_epochs: Passes over a rollout.
        gamma: Discount.
        gae_lambda: Of generalised advantage estimation.
        clip_range: Half width of the band of the ratio; lin_0.2 falls from 0.2 to 0.
        clip_range_vf: Largest change of a value per update; None: any.
        normalize_advantage: To mean 0 and std 1 per minibatch.
        ent_coef: Weight of the entropy bonus.
        vf_coef: Weight of the value loss.
        max_grad_norm: Largest norm of the gradient of policy and critic together.
        target_kl: An update ends once the estimated KL passes 1.5 times this, in nats.
        ortho_init: Orthogonal initial weights.
    """

    learning_rate: Rate = 3e-4
    n_steps: int = 2048
    batch_size: int = 64
    n_epochs: int = 10
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: Rate = 0.2
    clip_range_vf: float | None = None
    normalize_advantage: bool = True
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    target_kl: float | None = None
    ortho_init: bool = True


@dataclass(frozen=True)
class StableBaselines3A2C:
    """A2C of Stable-Baselines3.

    Attributes:
        learning_rate: Of the optimiser, for policy and critic; lin_7e-4 falls from 7e-4 to 0.
        n_steps: Steps of each environment per rollout.
        gamma: Discount.
        gae_lambda: Of generalised advantage estimation.
        ent_coef: Weight of the entropy bonus.
        vf_coef: Weight of the value loss.
        max_grad_norm: Largest norm of the gradient of policy and critic together.
        rms_prop_eps: Term in RMSprop's denominator.
        use_rms_prop: RMSprop instead of Adam.
        normalize_advantage: To mean 0 and std 1 per rollout.
        ortho_init: Orthogonal initial weights.
    """

    learning_rate: Rate = 7e-4
    n_steps: int = 5
    gamma: float = 0.99
    gae_lambda: float = 1.0
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    rms_prop_eps: float = 1e-5
    use_rms_prop: bool = True
    normalize_advantage: bool = False
    ortho_init: bool = True


@dataclass(frozen=True)
class StableBaselines3TRPO:
    """TRPO of sb3-contrib.

    Attributes:
        learning_rate: Of the critic's Adam; lin_0.001 falls from 0.001 to 0.
        n_steps: Steps of each environment per rollout.
        batch_size: Elements per step of the critic.
        gamma: Discount.
        cg_max_steps: Iterations of conjugate gradient.
        cg_damping: Added to the Fisher matrix's diagonal.
        line_search_shrinking_factor: From one trial step to the next.
        line_search_max_iter: Trial steps.
        n_critic_updates: Passes of the critic over a rollout.
        gae_lambda: Of generalised advantage estimation.
        normalize_advantage: To mean 0 and std 1 per rollout.
        target_kl: Bound on the mean KL of an update, in nats.
        sub_sampling_factor: The policy's step uses one element in so many.
        ortho_init: Orthogonal initial weights.
    """

    learning_rate: Rate = 1e-3
    n_steps: int = 2048
    batch_size: int = 128
    gamma: float = 0.99
    cg_max_steps: int = 15
    cg_damping: float = 0.1
    line_search_shrinking_factor: float = 0.8
    line_search_max_iter: int = 10
    n_critic_updates: int = 10
    gae_lambda: float = 0.95
    normalize_advantage: bool = True
    target_kl: float = 0.01
    sub_sampling_factor: int = 1
    ortho_init: bool = True


def parsed(rate: Rate) -> tuple[float, bool]:
    """The number of a rate, and whether it falls to 0.

    Raises:
        ValueError: Neither a number nor lin_NUMBER.
    """
    text = str(rate)
    return float(text.removeprefix(_LINEAR)), text.startswith(_LINEAR)
