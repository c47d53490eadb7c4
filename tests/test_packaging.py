"""The package list, the wheel and what imports from it agree with the folders on disk."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PORTIONS = ("algorithms", "envs", "llm_track", "benchmark")
# Folders of files that are no modules.
DATA = {"redline.benchmark.scaffold", "redline.benchmark.suites", "redline.llm_track.assets"}
IGNORED = shutil.ignore_patterns("__pycache__")

# Prints where each package comes from and which suites the installed data folder holds.
PROBE = """
import importlib, importlib.resources, json, sys
from redline.benchmark.cli import main
suites = importlib.resources.files("redline.benchmark") / "suites"
print(json.dumps({
    "files": {name: importlib.import_module(name).__file__ for name in sys.argv[1:]},
    "suites": sorted(entry.name for entry in suites.iterdir()),
}))
"""


def package_files(root: Path) -> set[str]:
    """Every file of the four top-level packages, relative to `root`."""
    return {
        path.relative_to(root).as_posix()
        for portion in PORTIONS
        for path in (root / portion).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def listed_packages() -> set[str]:
    """The packages that pyproject.toml tells setuptools to install."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return set(settings["tool"]["setuptools"]["packages"])


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """What the command prints; its whole output where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def copy_of_the_project(to: Path) -> Path:
    """What the build reads; a copy, since setuptools leaves build/ and egg-info where it runs."""
    to.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, to)
    for portion in PORTIONS:
        shutil.copytree(ROOT / portion, to / portion, ignore=IGNORED)
    return to


def test_the_package_list_equals_the_folders_on_disk() -> None:
    folders = {Path(file).parent for file in package_files(ROOT)}
    assert listed_packages() == {".".join(("redline", *folder.parts)) for folder in folders}


def test_the_wheel_holds_every_file_and_works_away_from_the_checkout(tmp_path: Path) -> None:
    source = copy_of_the_project(tmp_path / "source")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", tmp_path / "dist", source)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert inside == {f"redline/{file}" for file in package_files(ROOT)}

    site = tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps")
    run(*pip, "--target", site, wheel)
    modules = sorted(listed_packages() - DATA)
    # -S leaves out the .pth files, and with them the finder of an editable install, which would
    # supply from the checkout whatever the wheel lacks; dependencies come by PYTHONPATH instead.
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(site), *dependencies))}
    command = (sys.executable, "-S", "-P", "-c", PROBE, *modules)
    found = json.loads(run(*command, cwd=tmp_path, env=environment))

    for name, file in found["files"].items():
        assert Path(file).is_relative_to(site), f"{name} comes from {file}"
    suites = {path.name for path in (ROOT / "benchmark" / "suites").iterdir()}
    assert set(found["suites"]) == suites - {"__pycache__"}
