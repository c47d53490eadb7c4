"""The `redline` command. Heavy libraries are imported where they are used, so help is instant."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from redline.benchmark import threads

threads.pin()

from redline.benchmark.errors import BadInput, unknown  # noqa: E402

USAGE = """\
redline: a benchmark suite for policy optimisation.

  redline run ALGO --task TASK [settings]   train one run          (redline run ppo --help)
"""


def _run(arguments: Sequence[str]) -> int:
    from redline.benchmark.commands import run

    return run.main(arguments)


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"run": _run}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; gives the exit code (0 ok, 1 failed cells, 2 bad input)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    try:
        if arguments[0] not in COMMANDS:
            raise unknown("command", arguments[0], COMMANDS)
        return COMMANDS[arguments[0]](arguments[1:])
    except BadInput as error:
        print(f"redline: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("redline: interrupted; what was written is kept", file=sys.stderr)
        return 130
