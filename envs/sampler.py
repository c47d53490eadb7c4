"""Collects rollouts on control, by steps or by whole episodes, and owns the normalisers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from redline.algorithms.core.resampling import collect_mixed
from redline.algorithms.core.types import Array, Need, Rollout
from redline.envs.episodes import Tick, play
from redline.envs.normalize import ObservationNormalizer, RewardNormalizer
from redline.envs.record import Record
from redline.envs.slots import EnvList, Slots, make_vector
from redline.envs.tasks import ControlTask, EnvironmentFault, TaskError


class Actor(Protocol):
    """What a sampler needs of a policy."""

    def act(self, observation: Array, rng: np.random.Generator | None) -> Array:
        """Actions [N, ...] for observations [N, D]; the mode when `rng` is None."""


@dataclass(frozen=True)
class SamplerSettings:
    """How experience is gathered.

    Attributes:
        n_envs: Environments side by side.
        vectorization: "list" (a plain loop, fastest for cheap tasks), "sync" (SyncVectorEnv) or
            "vector" (the task's own vector environment).
        normalize_observation: Running mean and std, frozen at evaluation.
        normalize_reward: Divide by the running std of the discounted return.
        gamma: Discount of that return.
    """

    n_envs: int = 8
    vectorization: str = "list"
    normalize_observation: bool = False
    normalize_reward: bool = False
    gamma: float = 0.99


class ControlSampler:
    """Gymnasium environments as a source of rollouts.

    Args:
        task: What to play.
        settings: How.
        rng: Draws action noise and the seeds of episodes.
        seed: Slot i starts from seed + i, so every slot can be replayed alone.
    """

    def __init__(
        self, task: ControlTask, settings: SamplerSettings, rng: np.random.Generator, seed: int
    ) -> None:
        self.task, self.settings, self.rng = task, settings, rng
        n = settings.n_envs
        self.slots: Slots = (
            EnvList(task, n)
            if settings.vectorization == "list"
            else make_vector(task, n, settings.vectorization)
        )
        self.observation_normalizer = (
            ObservationNormalizer(task.observation_size) if settings.normalize_observation else None
        )
        self.reward_normalizer = (
            RewardNormalizer(n, settings.gamma) if settings.normalize_reward else None
        )
        self._seed = self._run_seed = seed
        self._observation: Array | None = None
        self._running_return = np.zeros(n)
        self._running_length = np.zeros(n, dtype=int)

    def normalise(self, observation: Array) -> Array:
        """Observations as the policy sees them."""
        return (
            self.observation_normalizer(observation) if self.observation_normalizer else observation
        )

    def collect(self, policy: Actor, need: Need) -> Rollout:
        """One rollout.

        Raises:
            EnvironmentFault: An environment raised, or gave a number that is not finite.
            TaskError: Episodes were asked of a vector environment.
        """
        if need.steps is not None:
            return self._collect_steps(policy, need.steps)
        if need.mixed:
            return collect_mixed(lambda asked: self._collect_episodes(policy, asked), need)
        return self._collect_episodes(policy, need)

    def _collect_steps(self, policy: Actor, steps: int) -> Rollout:
        n, record = self.slots.n, Record()
        if self._observation is None:
            self._observation = self.slots.reset(self._seed)
        observation = self._observation
        for t in range(steps):
            action = policy.act(self.normalise(observation), self.rng)
            step = self.slots.step(action)
            record.add(
                observation, action, step.reward, step.valid, step.terminated, step.truncated
            )
            for i, last in step.final.items():
                if step.truncated[i] and not step.terminated[i]:
                    record.bootstrap(i, t, last)
            observation = step.observation
        self._observation = observation
        mask, ended = record.stack("mask"), record.stack("terminated") | record.stack("truncated")
        for i in range(n):
            if mask[i, -1] and not ended[i, -1]:
                record.bootstrap(i, steps - 1, observation[i])
        episode = np.cumsum(np.roll(ended, 1, axis=1) & (np.arange(steps) > 0), axis=1)
        episode += np.concatenate(([0], np.cumsum(episode[:-1, -1] + 1)))[:, None]
        returns, lengths = self._finished(record.stack("reward"), mask, ended)
        return self._rollout(record, np.where(mask, episode, -1), None, returns, lengths)

    def _finished(self, reward: Array, mask: Array, ended: Array) -> tuple[list[float], list[int]]:
        """Returns and lengths of the episodes that ended in this rollout, in order of time."""
        found = []
        for i in range(len(reward)):
            total, length, start = self._running_return[i], int(self._running_length[i]), 0
            for t in np.flatnonzero(ended[i]).tolist():
                counts = mask[i, start : t + 1]
                total += reward[i, start : t + 1][counts].sum()
                found.append((t, float(total), length + int(counts.sum())))
                total, length, start = 0.0, 0, t + 1
            counts = mask[i, start:]
            self._running_return[i] = total + reward[i, start:][counts].sum()
            self._running_length[i] = length + counts.sum()
        found.sort(key=lambda item: item[0])
        return [item[1] for item in found], [item[2] for item in found]

    def _collect_episodes(self, policy: Actor, need: Need) -> Rollout:
        if not isinstance(self.slots, EnvList):
            raise TaskError(
                "whole episodes from chosen seeds need --vectorization list, got "
                f"{self.settings.vectorization!r}"
            )
        assert need.groups is not None
        group_seeds = self._starts(need.groups, need.starts)
        group = np.repeat(np.arange(need.groups), need.group_size)
        record, episode, clock = Record(), [], 0

        def on_tick(tick: Tick) -> None:
            nonlocal clock
            record.add(
                tick.observation,
                tick.action,
                tick.reward,
                tick.active,
                tick.terminated,
                tick.truncated,
            )
            episode.append(tick.episode)
            for i, last in tick.final.items():
                if tick.truncated[i] and not tick.terminated[i]:
                    record.bootstrap(i, clock, last)
            clock += 1

        def act(observation: Array) -> Array:
            return policy.act(self.normalise(observation), self.rng)

        play(self.slots, group_seeds[group].tolist(), act, on_tick)
        # A run that mixes both kinds of rollout starts its next step rollout afresh.
        self._observation = None
        ids = np.stack(episode, axis=1)
        mask = record.stack("mask")
        returns = np.bincount(ids[mask], weights=record.stack("reward")[mask]).tolist()
        rollout = self._rollout(record, ids, group, returns, np.bincount(ids[mask]).tolist())
        return replace(rollout, outcome=np.array(returns), start_of_group=group_seeds.tolist())

    def _starts(self, groups: int, starts: int | None) -> Array:
        """[G] seeds of initial states."""
        if starts is None:
            return self.rng.integers(2**31, size=groups)
        chosen = self.rng.choice(starts, size=groups, replace=False)
        return np.random.default_rng([self._run_seed, starts]).integers(2**31, size=starts)[chosen]

    def _rollout(
        self,
        record: Record,
        episode_id: Array,
        group: Array | None,
        returns: list[float],
        lengths: list[int],
    ) -> Rollout:
        raw, reward, mask = (
            record.stack("observation"),
            record.stack("reward"),
            record.stack("mask"),
        )
        self._require_finite("reward", reward, mask)
        self._require_finite("observation", raw, mask)
        bootstrap = record.bootstraps(self.task.observation_size)
        if not np.isfinite(bootstrap.observation).all():
            raise EnvironmentFault(f"{self.task.name}: a final observation is not finite")
        normalizer = self.observation_normalizer
        first = normalizer is not None and normalizer.moments.count == 0
        if normalizer is not None and first:
            # Learned from as it was acted on, raw, the first rollout would shape weights for a
            # scale that is gone with the second: a natural step on observations of 0.01 never
            # recovers. The initial policy hardly depends on what it observes.
            normalizer.update(raw[mask])
        observation = self.normalise(raw)
        bootstrap = bootstrap._replace(observation=self.normalise(bootstrap.observation))
        if normalizer is not None and not first:
            normalizer.update(raw[mask])
        terminated, truncated = record.stack("terminated"), record.stack("truncated")
        if self.reward_normalizer is not None:
            end = terminated | truncated
            reward = self.reward_normalizer(reward=reward, mask=mask, end=end)
        return Rollout(
            observation=observation,
            action=record.stack("action"),
            reward=reward,
            mask=mask,
            terminated=terminated,
            truncated=truncated,
            episode_id=episode_id,
            group_of_episode=np.arange(episode_id.max() + 1) if group is None else group,
            bootstrap=bootstrap,
            whole_episodes=group is not None,
            steps=int(mask.sum()),
            episode_return=returns,
            episode_length=lengths,
        )

    def _require_finite(self, what: str, value: Array, mask: Array) -> None:
        finite = np.isfinite(value)
        if finite.all():
            return
        bad = ~finite.reshape(*mask.shape, -1).all(axis=-1) & mask
        if bad.any():
            slot, t = (int(axis[0]) for axis in np.nonzero(bad))
            raise EnvironmentFault(
                f"{self.task.name}: environment {slot} gave the {what} {value[slot, t]} "
                f"at step {t + 1} of the rollout; it must be finite"
            )

    def state_dict(self) -> dict[str, Any]:
        """Normaliser statistics."""
        parts: dict[str, Any] = {}
        if self.observation_normalizer is not None:
            parts["observation"] = self.observation_normalizer.moments.state_dict()
        if self.reward_normalizer is not None:
            parts["reward"] = self.reward_normalizer.moments.state_dict()
        return parts

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`.

        Raises:
            ValueError: Statistics are missing that the settings ask for.
        """
        normalizers = {"observation": self.observation_normalizer, "reward": self.reward_normalizer}
        for name, normalizer in normalizers.items():
            if normalizer is None:
                continue
            if name not in state:
                raise ValueError(f"the statistics of the {name} normaliser are missing")
            normalizer.moments.load_state_dict(state[name])

    @property
    def exact(self) -> bool:
        """A run can go on from `progress` as if it had not been cut."""
        return self._observation is None or self.slots.exact

    def progress(self) -> dict[str, Any]:
        """What the next rollout depends on besides policy and statistics."""
        begun = self._observation is not None
        return {
            "rng": self.rng.bit_generator.state,
            "slots": self.slots.state_dict() if begun else None,
            "observation": self._observation,
            "running_return": self._running_return.copy(),
            "running_length": self._running_length.copy(),
            "reward": None if self.reward_normalizer is None else self.reward_normalizer.running,
        }

    def resume(self, progress: dict[str, Any]) -> None:
        """Go on from `progress`; episodes that could not be captured start anew."""
        self.rng.bit_generator.state = progress["rng"]
        if progress["slots"] is None:
            # Not the episodes that the run began with once more.
            self._seed = (
                int(self.rng.integers(2**31)) if progress["observation"] is not None else self._seed
            )
            return
        self.slots.load_state_dict(progress["slots"])
        self._observation = np.asarray(progress["observation"])
        self._running_return = np.asarray(progress["running_return"])
        self._running_length = np.asarray(progress["running_length"])
        if self.reward_normalizer is not None:
            self.reward_normalizer.running = np.asarray(progress["reward"])

    def close(self) -> None:
        """Release the environments."""
        self.slots.close()
