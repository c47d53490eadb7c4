"""The report of a folder of runs: report.md, report.csv (a row per run) and report.png."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from redline.benchmark import tables
from redline.benchmark.baselines.catalogue import footnote
from redline.benchmark.errors import BadInput, first_line, unknown
from redline.benchmark.records import Results, load
from redline.benchmark.tracks import CONTROL, LANGUAGE, TRACKS, Track, track_of

_MEASURES = {
    CONTROL: """\
One seed is one sample. *final* is the mean reward per episode of the last evaluation, played by the
policy on episodes that are the same for every run: the deterministic one takes the most likely
action, the stochastic one samples.
""",
    LANGUAGE: """\
On llm: tasks one seed is one sample too, and *final* is the share of right answers to held-out
problems, which are the same for every run: of sampled completions, or of greedy ones, whose every
token is the most likely one.
""",
}
_TRIPS = """\
Updates after which more than 80% of the ratios lay outside [0.8, 1.2] (outside_band), whose
KL(old‖new) was above 0.5 nats (kl), or that met nan (not_finite). Where the setting `breaker` is
"record", as in suites, nothing followed from them.
"""
_READING = """\
*best* is the highest of a run's evaluations. *area* is the area
under its learning curve as a mean over the budget: the integral of the {quantity} over
{unit} by the trapezoid rule from step 0 to the budget, divided by the budget.
± is half of the 95% t interval of the mean over seeds. *IQM* is the mean without the floor(n/4)
highest and lowest seeds, with a 95% percentile bootstrap interval, which is too narrow below about
10 seeds. An interval needs two seeds. Failed, missing and nan runs enter no statistic; the column
*seeds* counts them.
"""


def write(root: Path, baseline: str | None = None) -> Results:
    """Write the three files into `root`; gives what they were made of.

    Args:
        root: Folder with runs at or below it.
        baseline: Method that the others are compared with.

    Raises:
        BadInput: No runs there, no such method, or the folder cannot be written.
    """
    results = load(root)
    if not results.records:
        raise BadInput(f"{root} holds no run yet: there is no readable run.json at or below it")
    if baseline is not None and baseline not in results.methods:
        raise unknown("baseline", baseline, results.methods)
    # matplotlib takes longer to import than wrong input to answer.
    from redline.benchmark import plots

    try:
        plots.save(results, root / "report.png")
        results.runs.to_csv(root / "report.csv", index=False, float_format="%.10g")
        text = "\n\n".join(part.strip() for part in _parts(root, results, baseline)) + "\n"
        (root / "report.md").write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write to {root}: {error.strerror or error}") from error
    return results


def _parts(root: Path, results: Results, baseline: str | None) -> Iterable[str]:
    tracks = _tracks(results)
    names = [str(data["suite"]) for data in results.matrices if "suite" in data]
    yield f"# {', '.join(names) or root.resolve().name}"
    questions = [str(data["question"]) for data in results.matrices if data.get("question")]
    yield "\n\n".join(questions) or _question(results)
    yield "\n".join(_setup(results, track) for track in tracks)
    if (note := footnote(results.records)) is not None:
        yield note + "."
    units = " or ".join(track.unit for track in tracks)
    quantity = " or ".join(track.quantity for track in tracks)
    yield f"![{quantity}, KL and clip fraction over {units}](report.png)"
    for task in results.tasks:
        yield f"## {task}"
        for table in tables.of_task(results, task, baseline):
            yield f"{table.title[0].upper()}{table.title[1:]}:"
            yield table.markdown()
    if baseline is not None and len(results.tasks) > 1:
        yield "## All tasks"
        table = tables.across_tasks(results, baseline)
        yield f"{table.title}: 0 is the untrained policy, 1 is {baseline}'s mean."
        yield table.markdown()
    if lines := tripped(results):
        yield "## Trips of the breaker"
        yield _TRIPS
        yield "\n".join(f"- {line}" for line in lines)
    if lines := problems(results):
        yield "## Runs that do not count"
        yield "\n".join(f"- {line}" for line in lines)
    yield "## How to read the numbers"
    measures = "".join(_MEASURES[track] for track in tracks)
    yield (measures + _READING).format(unit=units, quantity=quantity)
    yield "## How it was run"
    yield from _provenance(results)


def _question(results: Results) -> str:
    tasks = ", ".join(results.tasks)
    return f"How do {len(results.methods)} methods compare on {tasks}?"


def _tracks(results: Results) -> list[Track]:
    return [track for track in TRACKS if track in map(track_of, results.tasks)]


def _setup(results: Results, track: Track) -> str:
    """Budget and evaluation on one track, with every value that occurs."""
    records = [r["run"] for r in results.records if track_of(r["run"]["task"]) is track]
    steps, evals, size = (
        " / ".join(f"{value:,}" for value in sorted({run[name] for run in records}))
        for name in ("steps", "evals", track.size)
    )
    count = sum(track_of(task) is track for task in results.runs["task"])
    return (
        f"{count} runs of {steps} {track.unit}, evaluated at the start and {evals} times on {size} "
        f"{track.size.removeprefix('eval_')} each."
    )


def tripped(results: Results) -> list[str]:
    """How often the breaker tripped, a line per method and task; none where it never did."""
    records = {record["hash"]: record.get("trips", {}) for record in results.records}
    lines = []
    for (task, method), runs in results.runs.groupby(["task", "method"], sort=False):
        found = [trips for code in runs["hash"].dropna() if (trips := records[code])]
        if not found:
            continue
        rules: Counter[str] = Counter()
        for trips in found:
            rules.update(trips["rules"])
        kinds = ", ".join(f"{name} {count:,}" for name, count in rules.most_common())
        lines.append(
            f"{method} on {task}: {rules.total():,} updates in {len(found)} of {len(runs)} runs "
            f"({kinds})"
        )
    return lines


def problems(results: Results) -> list[str]:
    """Runs that are not done, with their errors, and files that could not be used."""
    lines = []
    for run in results.runs[results.runs["status"] != "done"].itertuples():
        error = f", {first_line(run.error)}" if isinstance(run.error, str) else ""
        lines.append(f"{run.path}: {run.status}{error}")
    return [*lines, *results.notes]


def _provenance(results: Results) -> Iterable[str]:
    commands = [str(data["command"]) for data in results.matrices if data.get("command")]
    if commands:
        yield "```\n" + "\n".join(commands) + "\n```"
    facts = [f"- {name} {' / '.join(values)}" for name, values in _versions(results).items()]
    yield "\n".join(facts)
    hashes = results.runs.dropna(subset=["hash"]).groupby(["task", "method"], sort=False)["hash"]
    lines = [f"- {method} on {task}: {' '.join(values)}" for (task, method), values in hashes]
    yield "Hashes of the settings, in the order of the seeds (report.csv names them by run):"
    yield "\n".join(lines)


def _versions(results: Results) -> Mapping[str, list[str]]:
    """Package, commit and machine -> every value that occurs."""
    found: dict[str, dict[str, None]] = {}
    for record in results.records:
        facts = dict(record.get("versions", {}))
        facts["commit"] = record.get("git") or "none (installed package)"
        host = record.get("host", {})
        facts["machine"] = f"{host.get('system')} {host.get('machine')}, {host.get('cpus')} cores"
        for name, value in facts.items():
            found.setdefault(name, {})[str(value)] = None
    return {name: list(values) for name, values in found.items()}
