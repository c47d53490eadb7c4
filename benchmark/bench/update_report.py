"""`redline bench update`, method by method: what the terminal and the JSON file say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from redline.benchmark.bench import output, update
from redline.benchmark.bench.update import Measured
from redline.benchmark.errors import BadInput
from redline.benchmark.formats import number
from redline.benchmark.preflight import check_tasks
from redline.benchmark.tables import Table, show
from redline.envs.tasks import control_task

_READING = """\
ms: wall time of one update from the same state on the same rollout, median [smallest, largest].
x ppo: how many times ppo's update that is.
MiB: most memory that numpy and Python held during one update beyond what was there before, the
networks' work space included; parameters, rollout and LAPACK's own work space do not count."""


def run(task: str, repeats: int, only: Iterable[str], json: Path | None) -> None:
    """Measure methods one after the other; the file is complete after each.

    Raises:
        BadInput: No such method or task.
        OSError: The file cannot be written.
    """
    names = update.chosen(only)
    check_tasks([update.resolved("ppo", task)])
    networks = update.Networks(control_task(task))
    on = update.rollout(networks.task, networks.policy())
    found: list[Measured] = []
    for name in names:
        try:
            check_tasks([update.resolved(name, task)])
        except BadInput as error:
            print(f"{name}: refused, {error}", flush=True)
            continue
        found.append(update.measure(name, networks, on, repeats))
        print(f"{name}: {1e3 * found[-1].median:,.1f} ms", flush=True)
        output.write_rows(json, (measured.row(task) for measured in found))
    episodes = len(on.episode_return)
    show(table(f"one update on {on.steps:,} elements of {task} in {episodes} episodes", found))
    print(_READING)


def table(title: str, found: Sequence[Measured]) -> Table:
    """A row per method."""
    ppo = next((measured.median for measured in found if measured.name == "ppo"), None)
    rows = []
    for measured in found:
        milliseconds = [1e3 * value for value in measured.seconds]
        rows.append(
            [
                measured.name,
                f"{1e3 * measured.median:.2f} {output.spread(milliseconds)}",
                str(len(measured.seconds)),
                "n/a" if ppo is None else f"{measured.median / ppo:.2f}",
                number(measured.memory_mb),
            ]
        )
    return Table(title, ["method", "ms", "repeats", "x ppo", "MiB"], rows)
