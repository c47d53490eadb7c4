"""The report of a folder: report.html, report.md, report.csv (a row per run) and report.png."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from redline.benchmark.baselines.catalogue import footnote
from redline.benchmark.comparison import By, Judging, judging, unlike
from redline.benchmark.contents import Contents, contents
from redline.benchmark.doctor.examine import examine
from redline.benchmark.doctor.history import read as read_history
from redline.benchmark.errors import BadInput, first_line
from redline.benchmark.records import Results, load
from redline.benchmark.tracks import CONTROL, LANGUAGE, TRACKS, Track, track_of
from redline.benchmark.words import counted

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
TRIPS = """\
Updates after which more than 80% of the ratios lay outside [0.8, 1.2] (outside_band), whose
KL(old‖new) was above 0.5 nats (kl), or that met nan (not_finite). Where the setting `breaker` is
"record", as in suites, nothing followed from them.
"""
# Questions without a readable gold that are named, of a task.
_MOST_NAMED = 5
# Of more, the rules would take longer than all the rest.
_MOST_EXAMINED = 500
DOCTOR = """\
`redline doctor` has the steps, the advice and the source of each.
"""
_READING = """\
*best* is the highest of a run's evaluations. *area* is the area
under its learning curve as a mean over the budget: the integral of the {quantity} over
{unit} by the trapezoid rule from step 0 to the budget, divided by the budget.
± is half of the 95% t interval of the mean over seeds. *IQM* is the mean without the floor(n/4)
highest and lowest seeds; its interval is that of a bootstrap, widened by sqrt(n/(n-1)) t/z, which
below 10 seeds is only roughly a 95% interval. An interval needs two seeds. Failed, missing and nan
runs enter no statistic; the column *seeds* counts them.
"""
_COMPARED = """\
*better* and *worse* are differences of means over seeds whose p-value, after Holm's correction for
all rows of the table, is at most 0.05; the interval is that of the single row. *cannot tell* says
how many seeds for each method would find the difference, if it and the spread are as seen, with a
chance of 80%. Below three seeds on a side there is no verdict, and none in favour of a method that
lost runs. *P(better)* is the chance that a run beats one of the baseline, ties counted half.
"""


def write(
    root: Path,
    baseline: str | None = None,
    by: By = "final",
    paired: bool = False,
    only: Sequence[str] | None = None,
) -> Contents:
    """Write the four files into `root`; gives what they say.

    Args:
        root: Folder with runs at or below it.
        baseline: Method that the others are compared with; None: ppo, else the first.
        by: Result of a run that is compared.
        paired: Compare runs of the same seed.
        only: Paths below `root` of the runs that count; None: all.

    Raises:
        BadInput: No runs there, no such method, or the folder cannot be written.
    """
    results = load(root, only)
    if not results.records:
        raise BadInput(f"{root} holds no run yet: there is no readable run.json at or below it")
    how = judging(results, baseline, by, paired)
    said = contents(results, how, examined(root, results))
    # matplotlib takes longer to import than wrong input to answer.
    from redline.benchmark import plots
    from redline.benchmark.page.render import render

    try:
        plots.save(results, root / "report.png")
        results.runs.to_csv(root / "report.csv", index=False, float_format="%.10g")
        text = "\n\n".join(filter(None, map(str.strip, _parts(root, said)))) + "\n"
        (root / "report.md").write_text(text, encoding="utf-8")
        (root / "report.html").write_text(render(root, said), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write to {root}: {error.strerror or error}") from error
    return said


def _parts(root: Path, said: Contents) -> Iterable[str]:
    results, how = said.results, said.how
    tracks = _tracks(results)
    yield f"# {title(root, results)}"
    yield "\n\n".join(questions(results))
    yield "\n".join(setups(results))
    if (note := footnote(results.records)) is not None:
        yield note + "."
    units = " or ".join(track.unit for track in tracks)
    quantity = " or ".join(track.quantity for track in tracks)
    yield f"![{quantity}, KL and clip fraction over {units}](report.png)"
    for task, found in said.tables.items():
        yield f"## {task}"
        for table in found:
            yield f"{table.title[0].upper()}{table.title[1:]}:"
            yield table.markdown()
        yield found.uncompared or ""
    if how is not None and said.across is not None:
        yield "## All tasks"
        yield f"{said.across.title}: 0 is the untrained policy, 1 is {how.baseline}'s mean."
        yield said.across.markdown()
    if lines := tripped(results):
        yield "## Trips of the breaker"
        yield TRIPS
        yield "\n".join(f"- {line}" for line in lines)
    if said.findings:
        yield "## What the doctor says"
        yield DOCTOR
        yield "\n".join(f"- {line}" for line in said.findings)
    if lines := problems(results):
        yield "## What does not count, or not alike"
        yield "\n".join(f"- {line}" for line in lines)
    yield "## How to read the numbers"
    yield from reading(results, how)
    yield "## How it was run"
    yield from _provenance(results)


def title(root: Path, results: Results) -> str:
    """Names of the suites, else of the folder."""
    names = [str(data["suite"]) for data in results.matrices if "suite" in data]
    return ", ".join(names) or root.resolve().name


def questions(results: Results) -> list[str]:
    """What the report answers, as the suites say or as the runs suggest."""
    asked = [str(data["question"]) for data in results.matrices if data.get("question")]
    tasks = ", ".join(results.tasks)
    if len(results.methods) == 1:
        return asked or [f"What does {results.methods[0]} reach on {tasks}?"]
    return asked or [f"How do {len(results.methods)} methods compare on {tasks}?"]


def setups(results: Results) -> list[str]:
    """Budget and evaluation, a sentence per track."""
    return [_setup(results, track) for track in _tracks(results)]


def reading(results: Results, how: Judging | None) -> Iterable[str]:
    """What the numbers mean, in paragraphs."""
    tracks = _tracks(results)
    measures = "".join(_MEASURES[track] for track in tracks)
    yield (measures + _READING).format(
        unit=" or ".join(track.unit for track in tracks),
        quantity=" or ".join(track.quantity for track in tracks),
    )
    if how is not None:
        yield _COMPARED


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
        f"{counted(count, 'run')} of {steps} {track.unit}, evaluated at the start and {evals} "
        f"{'time' if evals == '1' else 'times'} on {size} {track.size.removeprefix('eval_')} each."
    )


def examined(root: Path, results: Results) -> list[str]:
    """Findings about the runs that are done, a line per rule, method and task."""
    lines = []
    done = results.runs[results.runs["status"] == "done"]
    if len(done) > _MOST_EXAMINED:
        return [f"{len(done):,} runs are too many to go through here"]
    for (task, method), runs in done.groupby(["task", "method"], sort=False):
        found: dict[tuple[str, str], list[str]] = {}
        for path in runs["path"]:
            for finding in examine(read_history(root / path)):
                kind = ("note" if finding.severity == "note" else "**warning**", finding.rule)
                found.setdefault(kind, []).append(finding.evidence)
        lines += [
            f"{method} on {task}: {kind} {rule} in {len(said)} of {len(runs)} runs, in the first "
            f"{said[0]}"
            for (kind, rule), said in sorted(found.items())
        ]
    return lines


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
    differ = [note for task in results.tasks for note in unlike(results, task)]
    return [*lines, *results.notes, *_left_out(results), *differ]


def _left_out(results: Results) -> Iterable[str]:
    """Questions that no run asked, since nothing can be compared with their gold; by task."""
    found: dict[str, dict[str, str]] = {}
    most: Counter[str] = Counter()
    for record in results.records:
        if "left_out" in record:
            task = record["run"]["task"]
            found.setdefault(task, {}).update(record["left_out"]["first"])
            most[task] = max(most[task], record["left_out"]["count"])
    for task, golds in found.items():
        count = max(most[task], len(golds))
        first = islice(golds.items(), _MOST_NAMED)
        # Without the folder, which is one of the machine.
        named = [f"{place.rpartition('/')[2]} ({gold[:60]!r})" for place, gold in first]
        others = f" and {count - len(named):,} more" if count > len(named) else ""
        yield (
            f"{task}: {count:,} questions are never asked, for their gold answer cannot be read: "
            f"{', '.join(named)}{others}"
        )


def _provenance(results: Results) -> Iterable[str]:
    if typed := commands(results):
        yield "```\n" + "\n".join(typed) + "\n```"
    facts = [f"- {name} {' / '.join(values)}" for name, values in versions(results).items()]
    yield "\n".join(facts)
    yield "Hashes of the settings, in the order of the seeds (report.csv names them by run):"
    yield "\n".join(f"- {method} on {task}: {text}" for task, method, text in hashes(results))


def commands(results: Results) -> list[str]:
    """What was typed for the matrices."""
    return [str(data["command"]) for data in results.matrices if data.get("command")]


def hashes(results: Results) -> list[tuple[str, str, str]]:
    """Task, method, and the hashes of its runs in the order of the seeds."""
    found = results.runs.dropna(subset=["hash"]).groupby(["task", "method"], sort=False)["hash"]
    return [(str(task), str(method), " ".join(values)) for (task, method), values in found]


def versions(results: Results) -> Mapping[str, list[str]]:
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
