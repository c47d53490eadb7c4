"""What a run writes, read back by the tools that people use."""

import json
from pathlib import Path

from redline.benchmark.arguments import resolve
from redline.benchmark.loggers import JsonLines, read_rows
from redline.benchmark.runs import run_path, safe_name
from redline.benchmark.train import train


def test_tensorboard_shows_each_run_under_a_readable_name(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.io_wrapper import GetLogdirSubdirectories

    few = ["--steps", "600", "--evals", "2", "--eval-episodes", "2", "--clip.high", "0.3"]
    resolved = resolve("ppo", ["--task", "CartPole-v1", *few])
    folder = run_path(tmp_path, resolved)
    train(resolved, folder)
    (run,) = GetLogdirSubdirectories(str(tmp_path))
    assert Path(run).relative_to(tmp_path).as_posix() == "CartPole-v1/ppo--clip.high=0.3/seed=0"

    events = EventAccumulator(run).Reload()
    tags = set(events.Tags()["scalars"])
    assert {"train/kl", "train/clip_fraction", "rollout/ep_rew_mean", "eval/mean_reward"} <= tags
    rows = list(read_rows(folder / "eval.jsonl"))
    shown = [(event.step, event.value) for event in events.Scalars("eval/mean_reward")]
    assert shown == [(row["step"], row["eval/mean_reward"]) for row in rows]
    assert rows[0]["step"] == 0 and rows[-1]["step"] >= 600


def test_numbers_that_are_none_become_null_and_a_cut_line_is_left_out(tmp_path: Path) -> None:
    file = JsonLines(tmp_path / "rows.jsonl")
    file.write({"step": 1, "a": float("nan"), "b": float("inf"), "c": 2.5})
    file.write({"step": 2})
    file.close()
    text = (tmp_path / "rows.jsonl").read_text()
    assert json.loads(text.splitlines()[0]) == {"step": 1, "a": None, "b": None, "c": 2.5}
    (tmp_path / "rows.jsonl").write_text(text[:-3])
    assert [row["step"] for row in read_rows(tmp_path / "rows.jsonl")] == [1]
    assert list(read_rows(tmp_path / "none.jsonl")) == []


def test_distinct_names_stay_distinct_and_safe() -> None:
    names = ["a/b", "a%2Fb", "a:b", "..", ".", "a b", "é", "ppo--clip.high=0.3"]
    safe = [safe_name(name) for name in names]
    assert len(set(safe)) == len(names) and safe[-1] == names[-1]
    assert all("/" not in name and not name.startswith(".") for name in safe)
