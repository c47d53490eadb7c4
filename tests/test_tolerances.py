"""No test compares more loosely than 1e-3: a slip such as 1e6 for 1e-6 hides every fault."""

import ast
from pathlib import Path

from closeness import MAX_TOLERANCE

TESTS = Path(__file__).parent
NAMES = {"rtol", "atol", "rel", "abs", "rel_tol", "abs_tol"}


def loose_comparisons(source: str) -> list[tuple[str, float]]:
    """Keyword arguments that set a tolerance above the limit."""
    keywords = [
        keyword
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg in NAMES and isinstance(keyword.value, ast.Constant)
    ]
    return [
        (str(keyword.arg), keyword.value.value)
        for keyword in keywords
        if isinstance(keyword.value, ast.Constant)
        and isinstance(keyword.value.value, int | float)
        and keyword.value.value > MAX_TOLERANCE
    ]


def test_a_loose_tolerance_is_seen() -> None:
    assert loose_comparisons("close(a, b, rtol=1e6); approx(1, abs=1e-3)") == [("rtol", 1e6)]


def test_no_tolerance_is_loose() -> None:
    found = {
        path.relative_to(TESTS).as_posix(): loose
        for path in TESTS.rglob("*.py")
        if (loose := loose_comparisons(path.read_text()))
    }
    assert found == {}
