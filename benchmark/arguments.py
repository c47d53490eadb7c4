"""Command line and suites to resolved settings: one parser for both."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from redline.benchmark import language_presets
from redline.benchmark.baselines import catalogue
from redline.benchmark.checking import check
from redline.benchmark.config import PLUGIN_CODE, Resolved, flat_fields, replace_fields
from redline.benchmark.errors import BadInput, unknown
from redline.benchmark.parsing import flat_types, option, parse
from redline.benchmark.presets import preset
from redline.benchmark.tracks import CONTROL, LANGUAGE, RunConfig, Track, other_than, track_of

# Settings that hold names and values of their own: --generator min_terms 2 max_terms 3.
_PAIRS = ("generator", "reward")
# Settings of a method that only control tasks take.
_OF_STEPS = {"n_steps"}


def to_arguments(settings: Mapping[str, Any]) -> list[str]:
    """A mapping of dotted names, as in a suite, as command-line arguments."""
    arguments: list[str] = []
    pairs: dict[str, list[str]] = {}
    for key, value in settings.items():
        first, _, name = key.partition(".")
        if name and first in _PAIRS:
            pairs.setdefault(first, []).extend([name, str(value)])
        elif isinstance(value, Mapping):
            arguments += to_arguments({f"{key}.{inner}": item for inner, item in value.items()})
        elif isinstance(value, bool):
            head, _, name = key.rpartition(".")
            flag = name if value else f"no-{name}"
            arguments.append(f"--{head}.{flag}" if head else f"--{flag}")
        elif isinstance(value, list | tuple):
            arguments += [f"--{key}", *map(str, value)]
        elif isinstance(value, str) and value.startswith("-"):
            raise BadInput(f"{key} must be a value, got {value!r}, which looks like a flag")
        else:
            arguments += [f"--{key}", str(value)]
    for first, values in pairs.items():
        arguments += [f"--{first}", *values]
    return arguments


def resolve(algo: str, arguments: Sequence[str], prog: str = "redline run") -> Resolved:
    """Settings of one run: recipe defaults, then the preset of the task's family, then arguments.

    Raises:
        BadInput: Unknown algorithm or flag, a value that does not parse or is out of range.
        SystemExit: With code 0, after --help was printed.
    """
    plugins = [Path(path).resolve() for path in option(arguments, "plugin")]
    if not plugins and "--plugin" in arguments:
        raise BadInput("--plugin needs a value: the path of a Python file")
    tasks = option(arguments, "task")
    wants_help = any(argument in ("-h", "--help") for argument in arguments)
    task = tasks[-1] if tasks else "CartPole-v1"
    track = track_of(task)
    recipe = _recipe(algo, plugins, track)
    if not tasks and not wants_help:
        raise BadInput(f"{prog} {algo} needs --task, for example --task CartPole-v1")
    with _blamed_on(algo):
        before = _with_preset(algo, task, track.config(task=task), recipe())
        run, settings = _parse(arguments, *before, f"{prog} {algo}")
        # Absolute, so that the record is of use from any folder; all of them, since of a repeated
        # flag the parser keeps the last.
        run = dataclasses.replace(run, plugin=tuple(dict.fromkeys(plugins)))
        resolved = Resolved(algo, settings, run, _overrides(before, (run, settings)))
        check(resolved)
    return resolved


def from_record(data: Mapping[str, Any]) -> Resolved:
    """Settings back from run.json.

    Raises:
        BadInput: The algorithm is not there any more (a plugin, perhaps).
    """
    track = track_of(data["run"]["task"])
    recipe = _recipe(data["algo"], data["run"]["plugin"], track)
    of_run = {key: value for key, value in data["run"].items() if key != PLUGIN_CODE}
    run = replace_fields(track.config(task=data["run"]["task"]), of_run)
    run = dataclasses.replace(
        run, out=Path(run.out) if run.out else None, plugin=tuple(map(Path, run.plugin))
    )
    return Resolved(data["algo"], replace_fields(recipe(), data["recipe"]), run, data["overrides"])


def _recipe(algo: str, plugins: Iterable[str | Path], track: Track) -> type[Any]:
    from redline.algorithms import registry

    try:
        for path in plugins:
            registry.load_plugin(path)
        recipe = catalogue.get(algo) if catalogue.is_external(algo) else registry.get(algo)
    except (registry.UnknownAlgorithm, registry.PluginError) as error:
        raise BadInput(str(error)) from error
    if catalogue.is_external(algo) and track is LANGUAGE:
        raise BadInput(f"{algo} trains on control tasks alone, such as CartPole-v1")
    names = {field.name for field in dataclasses.fields(recipe)}
    for field in dataclasses.fields(track.config):
        if field.name in names:
            raise BadInput(
                f"algorithm {algo!r}: its field {field.name!r} is a setting of every run already; "
                "give it another name"
            )
    if "gamma" not in names:
        raise BadInput(f"algorithm {algo!r} needs a field 'gamma', the discount of its returns")
    return recipe


@contextlib.contextmanager
def _blamed_on(algo: str) -> Iterator[None]:
    """What the code of a plugin raises is an input that the user can mend."""
    from redline.algorithms import registry

    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        fault = registry.fault(algo, error)
        if fault is None:
            raise
        raise BadInput(str(fault)) from error


def has_preset(resolved: Resolved) -> bool:
    """There are settings for the method on the family of its task."""
    return bool(_preset(resolved.algo, resolved.run.task, resolved.recipe))


def _preset(algo: str, task: str, recipe: Any) -> dict[str, Any]:
    """Dotted name -> value; of another method where the recipe says `presets_of`.

    Raises:
        BadInput: There is no such other method.
    """
    if catalogue.is_external(algo):
        return catalogue.preset(algo, task)
    name = getattr(recipe, "presets_of", algo)
    if name != algo:
        from redline.algorithms import registry

        if name not in registry.names():
            raise unknown(f"algorithm in presets_of of {algo}", str(name), registry.names())
    values = language_presets.preset(name) if track_of(task) is LANGUAGE else preset(name, task)
    if name == algo:
        return values
    fields = {field.name for field in dataclasses.fields(recipe)}
    fields |= {field.name for field in dataclasses.fields(track_of(task).config)}
    return {key: value for key, value in values.items() if key.partition(".")[0] in fields}


def _with_preset(algo: str, task: str, run: RunConfig, recipe: Any) -> tuple[RunConfig, Any]:
    of_run = {field.name for field in dataclasses.fields(run)}
    values = _preset(algo, task, recipe)
    run = replace_fields(run, {k: v for k, v in values.items() if k in of_run})
    return run, replace_fields(recipe, {k: v for k, v in values.items() if k not in of_run})


def _parse(
    arguments: Sequence[str], run: RunConfig, recipe: Any, prog: str
) -> tuple[RunConfig, Any]:
    import tyro

    flat = tyro.conf.arg(name="")
    both = dataclasses.make_dataclass(
        "Settings",
        [
            ("run", Annotated[type(run), flat], dataclasses.field(default=run)),
            ("recipe", Annotated[type(recipe), flat], dataclasses.field(default=recipe)),
        ],
        frozen=True,
    )
    description = (type(recipe).__doc__ or "").partition("\n")[0]
    flags = flat_types(type(run)) | flat_types(type(recipe))
    other = other_than(track_of(run.task))
    elsewhere = flat_types(other.config).keys() - flags.keys()
    if other is CONTROL:
        elsewhere |= _OF_STEPS
    parsed: Any = parse(
        both,
        arguments,
        prog=prog,
        description=description,
        flags=flags,
        elsewhere=dict.fromkeys(elsewhere, f"{other.name} tasks") | _of_clip(flags),
    )
    return parsed.run, parsed.recipe


def _of_clip(flags: Container[str]) -> dict[str, str]:
    """Settings of clip bounds, where the method has none -> the methods that have."""
    from redline.algorithms import registry
    from redline.algorithms.core.clipping import Clip

    names = [f"clip.{name}" for name in flat_types(Clip)]
    if names[0] in flags:
        return {}
    clipped = [
        name
        for name in registry.names()
        if "clip" in {field.name for field in dataclasses.fields(registry.get(name))}
    ]
    return dict.fromkeys(
        names, f"methods with a clip ({', '.join(clipped)}), and this one has none"
    )


def _overrides(before: tuple[Any, Any], after: tuple[Any, Any]) -> dict[str, Any]:
    """What the user changed, except what the run's path already says."""
    unnamed = {"task", "seed", "steps", "out", "overwrite", "resume", "tensorboard", "plugin"}
    unnamed |= {
        "sampler_process",
        "breaker",
        "telemetry",
        "review_every",
        "evals",
        "eval_episodes",
        "eval_problems",
        "eval_samples",
    }
    changed: dict[str, Any] = {}
    for old, new in zip(before, after, strict=True):
        base = flat_fields(old)
        for name, value in flat_fields(new).items():
            if name not in unnamed and (name not in base or value != base[name]):
                changed[name] = list(value) if isinstance(value, tuple) else value
    return changed
