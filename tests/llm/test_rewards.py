"""Rewards by name: what each pays, what is logged, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from language import micro_language_model

from redline.llm_track.characters import character_tokenizer
from redline.llm_track.generation import Generation, SamplingSettings
from redline.llm_track.problems import TaskSettings
from redline.llm_track.rewards import Answered, RewardError, Rewards, Score
from redline.llm_track.sampler import LanguageSampler
from redline.llm_track.tasks import language_task
from redline.llm_track.verifier import Verdict, judge

MODULE = """
def length(prompt, completion, gold):
    return len(completion)

def fails(prompt, completion, gold):
    raise KeyError("no\\nsuch key")

def nothing(prompt, completion, gold):
    pass

def nan(prompt, completion, gold):
    return float("nan")

number = 3
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_rewards.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def paid(name: str, answered: list[Answered], seed: int = 0, p: float = 0.5) -> list[float]:
    return Rewards({name: 1.0}, p)(answered, np.random.default_rng(seed))[0]


def said(text: str, answer: str, gold: str = "1251", prompt: str = "482+769=") -> Answered:
    right = judge(answer or None, gold) is Verdict.RIGHT
    return Answered(prompt, text, gold, Score(right, bool(answer), answer, right, right))


RIGHT, WRONG, NONE = said("#1251", "1251"), said("#7", "7"), said("1 2 1251 3", "")


def test_exact_format_and_the_loophole() -> None:
    answered = [RIGHT, WRONG, NONE]
    assert paid("exact", answered) == [1.0, 0.0, 0.0]
    assert paid("format", answered) == [1.0, 1.0, 0.0]
    assert paid("hackable", answered) == [1.0, 0.0, 1.0]


def test_random_rewards_look_at_nothing_and_repeat_with_the_seed() -> None:
    rows = [RIGHT, WRONG] * 2_000
    one, again, other = (paid("random", rows, seed, 0.3) for seed in (1, 1, 2))
    assert one == again != other
    assert abs(np.mean(one) - 0.3) < 0.03
    assert abs(np.mean(one[::2]) - np.mean(one[1::2])) < 0.05
    assert set(paid("random", rows, p=0.0)) == {0.0} and set(paid("random", rows, p=1.0)) == {1.0}


# A gold, and the nine answers of which one is the label.
LABELS = {
    "1251": [str(1251 + k) for k in range(1, 10)],
    "-2": [str(k - 2) for k in range(1, 10)],
    "3/7": [f"{3 + 7 * k}/7" for k in range(1, 10)],
    "0.5": [f"{k}.5" for k in range(1, 10)],
    r"\pi": [str(k) for k in range(1, 10)],
    r"\text{(C)}": [str(k) for k in range(1, 10)],
}


@pytest.mark.parametrize(("gold", "labels"), LABELS.items())
def test_a_wrong_label_is_one_fixed_answer_and_never_the_gold(gold: str, labels: list[str]) -> None:
    for prompt in ("a", "b", "c", "d"):
        assert sum(paid("wrong", [said("", label, gold, prompt) for label in labels])) == 1.0
        assert paid("wrong", [said("", gold, gold, prompt), said("", "", gold, prompt)]) == [0, 0]


def test_a_function_of_the_user() -> None:
    assert paid("my_rewards:length", [RIGHT, WRONG]) == [5.0, 2.0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_rewards:fails", "raised KeyError: 'no.*such key' .on the completion '#1251'"),
        ("my_rewards:nothing", "my_rewards:nothing must give a finite number, got None"),
        ("my_rewards:nan", "must give a finite number, got nan"),
    ],
)
def test_a_function_that_fails_is_named(name: str, message: str) -> None:
    with pytest.raises(RewardError, match=message) as caught:
        paid(name, [RIGHT])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rewards({"exakt": 1.0}), "unknown reward 'exakt': known are .*nearest: exact"),
        (lambda: Rewards({}), "must name at least one"),
        (lambda: Rewards({"random": 1.0}, p=1.5), r"reward_p must lie in \[0, 1\], got 1.5"),
        (lambda: Rewards({"my_rewards:none": 1.0}), "cannot be imported .AttributeError"),
        (lambda: Rewards({"no_such_module:f": 1.0}), "cannot be imported .ModuleNotFoundError"),
        (lambda: Rewards({"my_rewards:number": 1.0}), "must be a function, got 3"),
        (lambda: Rewards({"model:/no/where": 1.0}), "reward model: .*there is no such folder"),
    ],
)
def test_rewards_that_do_not_exist(make: Callable[[], Rewards], message: str) -> None:
    with pytest.raises(RewardError, match=message):
        make()


@pytest.mark.parametrize("labels", [1, 2])
def test_a_reward_model_reads_prompt_and_completion(tmp_path: Path, labels: int) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForSequenceClassification

    tokenizer = character_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        num_labels=labels,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    answered = [RIGHT, WRONG, NONE]
    found = paid(f"model:{tmp_path}", answered)
    for one, value in zip(answered, found, strict=True):
        ids = torch.tensor([tokenizer(one.prompt + one.text).input_ids])
        with torch.no_grad():
            (logits,) = model(ids).logits
        expected = logits[0] if labels == 1 else logits.softmax(-1)[1]
        assert value == pytest.approx(float(expected), abs=1e-5)


def _sampler(reward: Rewards) -> LanguageSampler:
    made = micro_language_model()
    task = language_task("llm:arithmetic", TaskSettings(digits=1))
    generation = Generation(made, SamplingSettings(max_completion=4, reward=reward))
    return LanguageSampler(task, generation, np.random.default_rng(3))


def test_what_is_logged_is_what_was_optimised_beside_the_accuracy() -> None:
    from redline.algorithms.core.types import Need
    from redline.llm_track.policy import CausalLMPolicy

    rewards = Rewards({"random": 2.0, "my_rewards:length": -1.0})
    sampler = _sampler(rewards)
    policy = CausalLMPolicy(sampler.generation.language_model.model)
    rollout = sampler.collect(policy, Need(groups=3, group_size=4))
    parts = rollout.metrics["llm/reward/random"], rollout.metrics["llm/reward/my_rewards:length"]
    assert rollout.metrics["llm/reward"] == pytest.approx(2.0 * parts[0] - parts[1])
    assert np.mean(rollout.episode_return) == pytest.approx(rollout.metrics["llm/reward"])
    assert rollout.metrics["llm/accuracy"] == 0.0


def test_a_failed_rollout_is_taken_back() -> None:
    from redline.algorithms.core.types import Need
    from redline.llm_track.policy import CausalLMPolicy

    sampler = _sampler(Rewards({"my_rewards:fails": 1.0}))
    policy = CausalLMPolicy(sampler.generation.language_model.model)
    before = sampler.progress()
    with pytest.raises(RewardError):
        sampler.collect(policy, Need(groups=2, group_size=2))
    assert sampler.progress() == before
