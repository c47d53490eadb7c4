"""A trained run back from its folder, to play or to use from Python."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import gymnasium as gym
import numpy as np

from redline.benchmark import checkpoint
from redline.benchmark.arguments import from_record
from redline.benchmark.baselines.catalogue import is_external
from redline.benchmark.config import Resolved, replace_fields
from redline.benchmark.errors import BadInput, describe, first_line
from redline.benchmark.recording import Evaluated, Learned
from redline.benchmark.runs import read_run
from redline.benchmark.tracks import CONTROL, track_of
from redline.benchmark.train import parts
from redline.envs.evaluate import FIRST_SEED
from redline.envs.film import Film

if TYPE_CHECKING:
    from redline.llm_track.models import LanguageModel


class Trained:
    """What a run's last checkpoint holds, on either track.

    Attributes:
        resolved: Settings of the run.
        step: Steps or completions that it was trained for.
    """

    def __init__(self, resolved: Resolved, track: Any, policy: Any, step: int) -> None:
        self.resolved, self.step = resolved, step
        self._track, self._policy = track, policy

    def evaluate(self) -> dict[str, float]:
        """eval/* as training writes it to eval.jsonl."""
        found: dict[str, float] = self._track.evaluate(self._policy)
        return found

    def close(self) -> None:
        """Release what the track holds."""
        self._track.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class TrainedModel(Trained):
    """A language model after training."""

    def complete(self, prompts: Sequence[str], rng: np.random.Generator | None = None) -> list[str]:
        """One completion of each prompt, for example "482+769=".

        Args:
            prompts: Texts, completed side by side.
            rng: Draws the tokens; None: the most likely ones.

        Raises:
            ValueError: A prompt is too long, or has a character without a token.
        """
        generation = self._track.evaluator.generation
        rows = generation.prompts(prompts)
        texts: list[str] = generation.texts(generation.complete(self._policy, rows, 1, rng))
        return texts

    def language_model(self) -> LanguageModel:
        """The model with its tokenizer, as transformers uses them, adapters merged in.

        Nothing of this object is of use afterwards.

        Raises:
            BadInput: The policy is a mixture of several models.
        """
        from redline.llm_track.policy import CausalLMPolicy

        if not isinstance(self._policy, CausalLMPolicy):
            raise BadInput(
                f"the policy of {self.resolved.algo} is a mixture of models, which is no model of "
                "transformers"
            )
        if self.resolved.language.lora is not None:
            from redline.llm_track.lora import merge_adapters

            merge_adapters(self._policy.model)
        of_task: LanguageModel = self._track.evaluator.generation.language_model
        return dataclasses.replace(of_task, model=self._policy.model)


class TrainedPolicy(Trained):
    """A policy on a control task; its normaliser statistics never move."""

    def __init__(self, resolved: Resolved, track: Any, policy: Any, step: int) -> None:
        super().__init__(resolved, track, policy, step)
        env = track.evaluator.envs.envs[0]
        flattened = isinstance(env, gym.wrappers.FlattenObservation)
        self._space = env.env.observation_space if flattened else env.observation_space

    def act(self, observation: Any, rng: np.random.Generator | None = None) -> Any:
        """What the environment's `step` takes, for an observation as its `reset` gives it.

        Args:
            observation: One observation of the task's own space, or a batch [N, ...] of them.
            rng: Draws the action; None: the most likely one.

        Raises:
            ValueError: The shape fits neither.
        """
        observation = np.asarray(observation)
        shape = self._space.shape
        single = observation.shape == shape
        if not single and observation.shape[1:] != shape:
            raise ValueError(
                f"{self.resolved.run.task} observations have the shape {shape}, a batch has one "
                f"more axis in front; got {observation.shape}"
            )
        rows = [observation] if single else observation
        flat: list[Any] = [gym.spaces.flatten(self._space, row) for row in rows]
        seen = self._track.evaluator.normalise(np.stack(flat).astype(np.float32))
        actions = self._track.task.to_env(self._policy.act(seen, rng))
        return actions[0] if single else actions

    def returns(self, deterministic: bool = True, seed: int = FIRST_SEED) -> list[float]:
        """Sum of raw rewards of every evaluation episode, by default those of training.

        Args:
            deterministic: The most likely actions.
            seed: Episode k starts from seed + k.
        """
        found: list[float] = self._track.evaluator.returns(self._policy, deterministic, seed)
        return found

    def film(self) -> Film:
        """The task drawn while this policy plays it; to be closed.

        Raises:
            TaskError: The task gives no pictures.
        """
        return Film(self._track.task, self._track.evaluator.normalise, self._policy)


def load(run: str | Path, episodes: int | None = None) -> TrainedPolicy | TrainedModel:
    """The policy of a run folder.

    Args:
        run: Folder with run.json and checkpoint.pt.
        episodes: Evaluation episodes, or held-out problems; None: as many as while training.

    Raises:
        BadInput: No run or no checkpoint there, or one that cannot be read or does not fit.
    """
    folder = Path(run)
    data = read_run(folder)
    if data is None:
        raise BadInput(f"{folder} holds no run: there is no readable run.json")
    resolved = _settings(folder, data)
    state = _checkpoint(folder)
    if state.get("hash", data["hash"]) != data["hash"]:
        raise BadInput(f"{folder / checkpoint.NAME} belongs to another run than run.json")
    of_task = track_of(resolved.run.task)
    changes = {} if episodes is None else {of_task.size: episodes}
    if of_task is CONTROL and not is_external(resolved.algo):
        # Nothing is collected, and evaluation has its own; only other libraries insist on theirs.
        changes["n_envs"] = 1
    settings = replace_fields(resolved.run, changes)
    learner, track = parts(dataclasses.replace(resolved, run=settings))
    kind = TrainedPolicy if of_task is CONTROL else TrainedModel
    try:
        _restore(folder, state, learner, track)
        return kind(resolved, track, learner.policy, int(state["step"]))
    except BaseException:
        track.close()
        raise


def _settings(folder: Path, data: dict[str, Any]) -> Resolved:
    try:
        return from_record({"overrides": {}, **data})
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"{folder / 'run.json'} does not hold the settings of {data['algo']} as this version "
            f"writes them ({describe(error)})"
        ) from error


def _restore(folder: Path, state: dict[str, Any], learner: Learned, track: Evaluated) -> None:
    try:
        learner.load_state_dict(state["learner"])
        track.load_state_dict(state["track"])
        int(state["step"])
    # What is missing or has another shape shows in as many ways as there are parts to restore.
    except Exception as error:
        raise BadInput(
            f"{folder / checkpoint.NAME} does not fit the settings in run.json "
            f"({first_line(describe(error))})"
        ) from error


def _checkpoint(folder: Path) -> dict[str, Any]:
    path = folder / checkpoint.NAME
    try:
        return checkpoint.load(folder)
    except FileNotFoundError as error:
        raise BadInput(f"{folder} has no {checkpoint.NAME} yet") from error
    except pickle.UnpicklingError as error:
        raise BadInput(f"{path} is damaged, or holds code, which is never executed") from error
    except checkpoint.CheckpointError as error:
        raise BadInput(str(error)) from error
    # torch's reader meets damaged bytes with whatever error they lead it to.
    except Exception as error:
        raise BadInput(f"cannot read {path}: {first_line(str(error))}") from error
