"""`redline warm-start`: a language model learns from demonstrations, before any reward."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from redline.benchmark import ranks
from redline.benchmark.errors import BadInput, as_flag
from redline.benchmark.files import written_at_the_end
from redline.benchmark.parsing import parse
from redline.benchmark.runs import safe_name
from redline.benchmark.tracks import require_language_packages

if TYPE_CHECKING:
    from redline.llm_track.models import LanguageModel
    from redline.llm_track.warm_start import Supervised

    Train = Callable[[Callable[[int, float], None]], LanguageModel]

# Steps whose mean loss is printed.
_LAST = 100

_DESCRIPTION = (
    "Train a language model on demonstrations: the prompts and answers of a JSON-lines file, with "
    "the loss on the answers alone. Without --data, make the tiny model that ships once more, from "
    "random weights."
)


@dataclass(frozen=True)
class WarmStartConfig:
    """Settings of `redline warm-start`.

    Attributes:
        data: File with one JSON object a line; None: the sums that the tiny model was made with.
        model: What learns: "tiny", a local folder, or a hub id.
        prompt_column: Entry of an object that the model reads; the model's chat template, if it
            has one, is put around it.
        answer_column: Entry that it shall answer, word for word.
        out: Folder of the model; None: results/warm-start/<model>.
        overwrite: Replace a model that is there.
        steps: Optimiser steps; None: 300, or as many as the tiny model was made with.
        batch: Demonstrations per step.
        lr: Highest learning rate; None: 1e-4, or the tiny model's own.
        seed: Of the order of the demonstrations, and of the random weights without --data.
        dtype: Of the parameters.
        device: As torch names it.
    """

    data: Path | None = None
    model: str = "tiny"
    prompt_column: str = "prompt"
    answer_column: str = "answer"
    out: Path | None = None
    overwrite: bool = False
    steps: int | None = None
    batch: int = 32
    lr: float | None = None
    seed: int = 0
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    device: str = "cpu"


def main(arguments: Sequence[str]) -> int:
    """Train, write the folder of the model, and say where it lies."""
    config = parse(WarmStartConfig, arguments, prog="redline warm-start", description=_DESCRIPTION)
    _check(config)
    ranks.require_alone("redline warm-start")
    folder = config.out or Path("results") / "warm-start" / safe_name(config.model)
    if (folder / "config.json").exists() and not config.overwrite:
        raise BadInput(f"{folder} holds a model already; use --overwrite or another --out")
    require_language_packages("redline warm-start")
    from redline.llm_track.models import save_model

    settings = _settings(config)
    train = _remake(config, settings) if config.data is None else _imitate(config, settings)
    with written_at_the_end(folder) as temporary:
        made = _shown(train, settings)
        save_model(made, temporary)
    if (config.data, config.seed) == (None, 0) and settings == _shipped():
        print(_compared(made))
    print(f"model: {folder} (redline run ALGO --task TASK --model {folder})")
    return 0


def _check(config: WarmStartConfig) -> None:
    """Refuse what no training can be had with.

    Raises:
        BadInput: A number is out of range, or a setting is of no use.
    """
    least = {"steps": 1, "batch": 1, "seed": 0}
    for name, lowest in least.items():
        value = getattr(config, name)
        if value is not None and value < lowest:
            raise BadInput(f"--{name} must be at least {lowest}, got {value}")
    if config.lr is not None and not 0.0 < config.lr < math.inf:
        raise BadInput(f"--lr must be above 0 and finite, got {config.lr}")
    if config.data is None:
        for name in ("model", "prompt_column", "answer_column", "dtype", "device"):
            if getattr(config, name) != getattr(WarmStartConfig, name):
                raise BadInput(
                    f"{as_flag(name)} needs --data FILE: without a file the tiny model that ships "
                    "is made again"
                )


def _shipped() -> Supervised:
    from redline.llm_track.warm_start import SHIPPED

    return SHIPPED


def _settings(config: WarmStartConfig) -> Supervised:
    from redline.llm_track.warm_start import Supervised

    start = Supervised() if config.data else _shipped()
    given: dict[str, Any] = {"steps": config.steps, "lr": config.lr, "batch": config.batch}
    return dataclasses.replace(start, **{k: v for k, v in given.items() if v is not None})


def _remake(config: WarmStartConfig, settings: Supervised) -> Train:
    from redline.llm_track.demonstrations import Habits
    from redline.llm_track.warm_start import warm_tiny

    return lambda report: warm_tiny(Habits(), settings, config.seed, report)


def _imitate(config: WarmStartConfig, settings: Supervised) -> Train:
    """Load file and model, and see that they fit.

    Raises:
        BadInput: They cannot be read, or do not fit.
    """
    import numpy as np

    from redline.llm_track.demonstrations import DemonstrationError, read_jsonl, shuffled
    from redline.llm_track.models import load_model
    from redline.llm_track.pretrained import ModelError
    from redline.llm_track.text import TextError
    from redline.llm_track.warm_start import imitate, require_fit

    assert config.data is not None
    try:
        pairs = read_jsonl(config.data, config.prompt_column, config.answer_column)
        made = load_model(config.model, config.dtype, config.device)
        require_fit(made, pairs)
    except (DemonstrationError, ModelError, TextError) as error:
        raise BadInput(str(error)) from error

    def train(report: Callable[[int, float], None]) -> LanguageModel:
        order = shuffled(pairs, np.random.default_rng(config.seed), settings.batch)
        imitate(made, order, settings, report)
        return made

    return train


def _shown(train: Train, settings: Supervised) -> LanguageModel:
    """Train with a bar on a terminal, and print where the loss came to.

    Raises:
        BadInput: It came to nothing.
    """
    from redline.llm_track.warm_start import Diverged

    console, losses = Console(stderr=True), deque[float](maxlen=_LAST)
    columns = (
        TextColumn("warm start"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[loss]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task, done = bar.add_task("", total=settings.steps, loss=""), 0

        def report(step: int, loss: float) -> None:
            nonlocal done
            done = step
            losses.append(loss)
            bar.update(task, completed=step, loss=f"loss {loss:.3f}")

        try:
            made = train(report)
        except Diverged as error:
            raise BadInput(str(error).replace("lr", "--lr")) from error
    mean = math.fsum(losses) / len(losses)
    print(f"{done:,} steps; loss of the last {len(losses)}: {mean:.4f} nats per token")
    return made


def _compared(made: LanguageModel) -> str:
    """How a model that was made again compares with the one that ships."""
    from redline.llm_track.models import load_model

    pairs = zip(made.model.parameters(), load_model("tiny").model.parameters(), strict=True)
    largest = max(float((one - other).detach().abs().max()) for one, other in pairs)
    if largest == 0.0:
        return "the same bits as the model that ships"
    return (
        f"weights differ by up to {largest:.2g} from those of the model that ships: another type "
        "of processor rounds differently"
    )
