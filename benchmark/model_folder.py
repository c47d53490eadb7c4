"""What a run has learned as a folder that transformers reads."""

from __future__ import annotations

from pathlib import Path

from redline.benchmark.errors import BadInput
from redline.benchmark.files import written_at_the_end
from redline.benchmark.loading import TrainedModel, load
from redline.benchmark.runs import read_run


def write_model(run: Path, folder: Path, overwrite: bool = False) -> None:
    """Write weights with adapters merged in, tokenizer, and a model card.

    Args:
        run: Folder of the run; its last checkpoint counts.
        folder: Of the model.
        overwrite: Replace a model that is there.

    Raises:
        BadInput: There is no such run, it trained no language model or a mixture of them, or the
            folder cannot be written.
    """
    if (folder / "config.json").exists() and not overwrite:
        raise BadInput(f"{folder} holds a model already; use --overwrite or another --hf")
    with load(run, 1) as trained:
        if not isinstance(trained, TrainedModel):
            task = trained.resolved.run.task
            raise BadInput(f"{task} is no language task: its policy is no language model")
        from redline.llm_track.models import save_model

        model = trained.language_model()
        with written_at_the_end(folder) as temporary:
            save_model(model, temporary)
            card = _card(run, trained)
            (temporary / "README.md").write_text(card, encoding="utf-8")


def _card(run: Path, trained: TrainedModel) -> str:
    """What the model is and how good it was, as model cards say it."""
    settings = trained.resolved.language
    last = (read_run(run) or {}).get("final", {})
    figures = "".join(f"| {name} | {value:.4g} |\n" for name, value in sorted(last.items()))
    header = ["library_name: transformers", "pipeline_tag: text-generation", "tags: [redline]"]
    return (
        "---\n" + "\n".join(header) + "\n---\n\n"
        f"# {settings.model} after {trained.resolved.algo} on {settings.task}\n\n"
        f"Trained with redline from the model `{settings.model}`: {trained.step:,} sampled "
        f"completions, seed {settings.seed}. Its license is that of the model that it was trained "
        "from.\n" + (f"\n| last evaluation | |\n| --- | ---: |\n{figures}" if figures else "")
    )
