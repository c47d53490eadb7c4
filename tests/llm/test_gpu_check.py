"""The script behind `make gpu-check`, at a micro shape on the CPU."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "gpu_check.py"
# Prints the loaded modules that a machine with torch and transformers alone does not have.
PROBE = f"""
import json, runpy, sys
sys.argv = ["gpu_check.py", "--help"]
try:
    runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
except SystemExit:
    pass
absent = ("gymnasium", "mujoco", "rich", "tyro", "reasoning_gym", "stable_baselines3")
ours = ("redline.benchmark", "redline.envs")
print(json.dumps(sorted(name for name in (*absent, *ours) if name in sys.modules)))
"""


def test_all_updates_run_and_agree(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(SCRIPT))["main"]
    assert main(["--device", "cpu", "--micro", "--updates", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith("all checks passed\n") and shown.count("  ok\n") == 14
    for line in ("grpo in bfloat16: sampling", "ppo in bfloat16: ", "trpo in float32: "):
        assert f"\n{line}" in shown


@pytest.mark.parametrize("value", [1.0, 2.0, float("nan")])
def test_what_is_not_below_its_limit_fails(value: float) -> None:
    findings = runpy.run_path(str(SCRIPT))["Findings"]()
    findings.require("fine", 0.5, 1.0)
    assert findings.failed == 0
    findings.require("not fine", value, 1.0)
    assert findings.failed == 1


def test_it_needs_torch_and_transformers_alone() -> None:
    command = [sys.executable, "-c", PROBE]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--micro" in shown.stdout
    assert json.loads(shown.stdout.splitlines()[-1]) == []
