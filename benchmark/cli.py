"""The `redline` command. Heavy libraries are imported where they are used, so help is instant."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence

from redline.benchmark import threads

threads.pin()

from redline.benchmark import process, ranks  # noqa: E402
from redline.benchmark.errors import BadInput, unknown  # noqa: E402

USAGE = """\
redline: a benchmark suite for policy optimisation.

  redline run ALGO --task TASK [settings]   train one run
  redline matrix SUITE [--jobs N]           train every run of a suite that is missing
  redline table SUITE [--jobs N]            the same; finished runs stay as small summaries
  redline compare ALGO ALGO... --task TASK  train what is missing, say which is better
  redline report DIR [--baseline ALGO]      tables and curves of all runs below a folder
  redline doctor RUN|DIR [--json]           what is wrong with a run, with evidence and advice
  redline review RUN [--grader NAME]        grade completions blind, and compare with the reward
  redline export DIR --csv|--parquet        all runs as tables, with every setting and metric
  redline export RUN --hf DIR               the language model of a run as transformers reads it
  redline eval RUN [--episodes N]           play a trained policy
  redline eval --task TASK [--model MODEL]  let a language model answer, untrained
  redline watch RUN [--out FILE.mp4]        film it while it plays
  redline new NAME                          a method of your own: a file and its test
  redline list [algorithms|tasks|suites]    what there is to run
  redline warm-start [--data FILE.jsonl]    a language model learns from demonstrations
  redline bench control|update|telemetry    CPU time against Stable-Baselines3; cost of an update
  redline --version

COMMAND --help lists its settings; redline run ppo --help those of an algorithm.
"""

COMMANDS = (
    "run",
    "matrix",
    "table",
    "compare",
    "report",
    "doctor",
    "review",
    "export",
    "eval",
    "watch",
    "list",
    "warm-start",
    "bench",
    "new",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; gives the exit code.

    0 ok, 1 failed cells, 2 bad input, 3 ended by the breaker, 130 interrupted.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    with process.safe_streams(), process.interruptible():
        try:
            code = _command(arguments)
            sys.stdout.flush()
            return code
        except BadInput as error:
            print(f"redline: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            if ranks.first():
                print("redline: interrupted; what was written is kept", file=sys.stderr)
            return 130
        except BrokenPipeError:  # whoever read our output has seen enough
            process.drop(sys.stdout)
            return 1
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            print(f"redline: {error.strerror or error}{where}", file=sys.stderr)
            process.drop(sys.stdout)
            return 1


def _command(arguments: Sequence[str]) -> int:
    _check_surroundings(arguments)
    # For tasks given as module:Env-v0; last, so that a file here replaces no installed module.
    if "" not in sys.path:
        sys.path.append("")
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if arguments[0] == "--version":
        print(f"redline {importlib.metadata.version('redline-rl')}")
        return 0
    if arguments[0] not in COMMANDS:
        raise unknown("command", arguments[0], COMMANDS)
    # Only the module of the command itself is imported.
    name = arguments[0].replace("-", "_")
    module = importlib.import_module(f"redline.benchmark.commands.{name}")
    code: int = module.main(arguments[1:])
    return code


def _check_surroundings(arguments: Sequence[str]) -> None:
    """Refuse what would fail somewhere in a library."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise BadInput(f"the argument {argument!r} is not valid UTF-8 text") from error
    try:
        os.getcwd()
    except OSError as error:
        raise BadInput("the current folder does not exist any more; change to another") from error
