"""All rules on one run."""

from __future__ import annotations

from collections.abc import Iterable

from redline.benchmark.doctor import clip_rules, learning_rules, trust_rules
from redline.benchmark.doctor.findings import Finding, apply
from redline.benchmark.doctor.history import History
from redline.benchmark.doctor.thresholds import Thresholds

# Importing them adds their rules.
_PARTS = (clip_rules, learning_rules, trust_rules)


def examine(history: History, thresholds: Thresholds | None = None) -> list[Finding]:
    """What all rules find, in the order of their names; warnings first."""
    found = apply(history, thresholds or Thresholds())
    return sorted(found, key=lambda finding: (finding.severity != "warn", finding.rule))


def severe(findings: Iterable[Finding]) -> bool:
    """A warning is among them."""
    return any(finding.severity == "warn" for finding in findings)
