"""Supervised warm start: the loss, the schedule, demonstrations, and the checkpoint that ships."""

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from language import MICRO, micro_language_model, next_log_probs

from redline.llm_track.arithmetic import Addition, direct, question, worked
from redline.llm_track.characters import character_tokenizer
from redline.llm_track.demonstrations import (
    Demonstration,
    DemonstrationError,
    Habits,
    read_jsonl,
    shuffled,
)
from redline.llm_track.generation import Generation, SamplingSettings
from redline.llm_track.models import LanguageModel, load_model, wrap
from redline.llm_track.tasks import language_task
from redline.llm_track.warm_start import (
    SHIPPED,
    Diverged,
    Encoder,
    Supervised,
    imitate,
    negative_log_likelihood,
    require_fit,
    warm_tiny,
)

PAIRS = [Demonstration("1+1=", "#2"), Demonstration("25+19=", "5+9=14;2+1+1=4;#44")]
SHORT = Supervised(steps=3, batch=8, warmup=2)


@pytest.mark.parametrize("kind", MICRO)
def test_the_loss_is_that_of_the_completions_alone(kind: str) -> None:
    made = wrap(kind, MICRO[kind](), character_tokenizer())
    rows = [Encoder(made)(pair) for pair in PAIRS]
    expected = 0.0
    for row in rows:
        for t in range(row.prompt, len(row.tokens)):
            expected -= float(next_log_probs(made.model, row.tokens[:t])[row.tokens[t]])
    # The shorter row's padding changes nothing; its end of sequence counts.
    assert rows[0].tokens[-1] == made.tokenizer.eos_id
    found = float(negative_log_likelihood(made.model, rows).detach())
    assert found == pytest.approx(expected, rel=1e-5)
    losses: list[float] = []
    imitate(made, iter([PAIRS]), Supervised(steps=1), lambda step, loss: losses.append(loss))
    count = sum(len(row.tokens) - row.prompt for row in rows)
    assert losses == [pytest.approx(expected / count, rel=1e-5)]


def test_parts_of_a_batch_add_up() -> None:
    weights = []
    for parts in (1, 3):
        made = micro_language_model()
        batches = Habits().batches(np.random.default_rng(0), 8)
        # Plain decay-free steps of one size: Adam would magnify rounding where a gradient is 0.
        imitate(made, batches, Supervised(steps=2, batch=8, lr=1e-3, parts=parts))
        weights.append(made.model.lm_head.weight.detach())
    torch.testing.assert_close(*weights, rtol=0.0, atol=1e-5)


def test_the_same_seed_gives_the_same_bits() -> None:
    first, again, other = (warm_tiny(Habits(), SHORT, seed).model for seed in (0, 0, 1))
    assert torch.equal(first.lm_head.weight, again.lm_head.weight)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_the_learning_rate() -> None:
    settings = Supervised(steps=110, lr=1.0, warmup=10)
    assert [settings.rate(step) for step in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1.0, 1.0])
    assert settings.rate(60) == pytest.approx(0.5)  # half of the cosine
    assert settings.rate(109) == pytest.approx(0.0, abs=1e-3)


def test_training_ends_where_the_loss_is_low_enough() -> None:
    made = wrap("llama", MICRO["llama"](), character_tokenizer())
    losses: list[float] = []
    imitate(
        made,
        shuffled(PAIRS[:1], np.random.default_rng(0), 1),
        Supervised(steps=400, batch=1, lr=1e-2, warmup=5, stop_below=0.05),
        lambda step, loss: losses.append(loss),
    )
    assert 100 < len(losses) < 400
    assert np.mean(losses[-100:]) < 0.05 <= np.mean(losses[-101:-1])


def test_demonstrations_show_two_habits_on_training_sums_only() -> None:
    task = Addition(digits=2)
    held_out = {question(sorted(problem)) for problem in task.held_out(400)}
    batches = islice(Habits(task, worked_share=0.3).batches(np.random.default_rng(0), 50), 40)
    shown = [demonstration for batch in batches for demonstration in batch]
    for prompt, completion in shown:
        operands = tuple(map(int, prompt.removesuffix("=").split("+")))
        assert completion in (direct(operands), worked(operands))
        assert question(sorted(operands)) not in held_out
    share = np.mean([";" in completion for _, completion in shown])
    assert share == pytest.approx(0.3, abs=4 * (0.21 / len(shown)) ** 0.5)


def test_any_model_learns_a_file_by_heart(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(pair._asdict()) for pair in PAIRS) + "\n\n")
    pairs = read_jsonl(path, completion="completion")
    assert pairs == PAIRS
    made = wrap("gpt2", MICRO["gpt2"](), character_tokenizer())
    losses: list[float] = []
    imitate(
        made,
        shuffled(pairs, np.random.default_rng(0), 2),
        Supervised(steps=120, batch=2, lr=1e-2, warmup=5),
        lambda step, loss: losses.append(loss),
    )
    assert losses[0] > 2.0 and losses[-1] < 0.1 and len(losses) == 120
    generation = Generation(made, SamplingSettings(max_completion=24))
    found = generation.complete(made, generation.prompts([pair.prompt for pair in pairs]), 1, None)
    assert generation.texts(found) == [pair.completion for pair in pairs]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "pairs.jsonl is empty: it holds no demonstrations"),
        ("\n \n", "pairs.jsonl is empty"),
        (
            '{"prompt": "a", "answer": "b"}\n{"prompt": "a"}',
            "line 2 has no column 'answer'; it has prompt",
        ),
        ("{}", "line 1 has no column 'prompt'; it has none"),
        ('{"prompt": 1, "answer": "b"}', "line 1: prompt must be text, got 1"),
        ("[1, 2]", "line 1 must be one JSON object, got"),
        ("not json", "line 1 must be one JSON object, got 'not json'"),
        ("[" * 100_000, "line 1 must be one JSON object"),
    ],
)
def test_a_file_that_holds_something_else(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(text)
    with pytest.raises(DemonstrationError, match=message):
        read_jsonl(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DemonstrationError, match="cannot be read: No such file"):
        read_jsonl(tmp_path / "none.jsonl")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DemonstrationError, match="cannot be read: it is not UTF-8 text"):
        read_jsonl(tmp_path / "binary")


def test_a_line_ends_at_a_line_feed_alone(tmp_path: Path) -> None:
    # Both are legal within a string of JSON: a mark before the text, and a separator of lines.
    (tmp_path / "pairs").write_text('\ufeff{"q": "a\u2028b", "a": "c"}\r\n', encoding="utf-8")
    assert read_jsonl(tmp_path / "pairs", "q", "a") == [Demonstration("a\u2028b", "c")]


def test_every_demonstration_comes_once_before_any_comes_again() -> None:
    pairs = [Demonstration(str(i), "") for i in range(5)]
    batches = list(islice(shuffled(pairs, np.random.default_rng(0), 3), 5))
    order = [pair.prompt for batch in batches for pair in batch]
    assert [len(batch) for batch in batches] == [3] * 5
    assert all(sorted(order[i : i + 5]) == list("01234") for i in (0, 5, 10))


def test_a_demonstration_beyond_the_context_is_one_sentence() -> None:
    made = micro_language_model(context=16)
    with pytest.raises(DemonstrationError, match="has 29 tokens and the model's context is 16"):
        require_fit(made, [PAIRS[0], Demonstration("482+769=", "9+2=11;6+8+1=15;#1251"[:20])])


def test_a_loss_that_is_no_number_ends_the_training() -> None:
    made = micro_language_model()
    with pytest.raises(Diverged, match="the loss is nan at step 2: lr inf is too large"):
        imitate(made, iter([PAIRS] * 2), Supervised(steps=2, lr=float("inf")))


@pytest.mark.slow  # minutes
def test_the_recipe_of_the_checkpoint_gives_such_a_model() -> None:
    require_habits(warm_tiny(Habits(), SHIPPED, seed=0))


def test_the_checkpoint_that_ships_has_two_habits_of_which_one_pays() -> None:
    require_habits(load_model("tiny"))


def require_habits(made: LanguageModel) -> None:
    problems = language_task("llm:arithmetic").held_out(400)
    generation = Generation(made, SamplingSettings(max_completion=48))
    prompts = generation.prompts([problem.prompt for problem in problems])
    found = generation.complete(made, prompts, 1, np.random.default_rng(0))
    correct = np.array([score.correct for score in generation.scores(problems, found)])
    shows_work = np.array([";" in text for text in generation.texts(found)])
    # Measured over 4000: 0.41 right, 0.28 show their work; right are 0.26 of answers at once and
    # 0.80 of the worked ones. Limits at four standard errors of shares over 400, 290 and 110.
    assert 0.31 < correct.mean() < 0.51
    assert 0.19 < shows_work.mean() < 0.37
    assert 0.15 < correct[~shows_work].mean() < 0.37
    assert correct[shows_work].mean() > 0.65
    assert found.ended.mean() > 0.98
