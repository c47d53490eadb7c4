"""Every recipe solves CartPole-v1 with its preset."""

import pytest

from redline.benchmark.arguments import resolve
from redline.benchmark.train import train

# Mean of the final deterministic evaluation over three seeds after 100,000 steps.
AT_LEAST = {"reinforce": 400, "npg": 460, "trpo": 480, "ppo": 490, "grpo": 450}


@pytest.mark.slow
@pytest.mark.parametrize("algo", sorted(AT_LEAST))
def test_cartpole_is_learned(algo, tmp_path):
    finals = []
    for seed in range(3):
        arguments = ["--task", "CartPole-v1", "--steps", "100000", "--evals", "1"]
        resolved = resolve(algo, [*arguments, "--seed", str(seed)])
        finals.append(train(resolved, tmp_path / str(seed))["eval/mean_reward"])
    assert sum(finals) / 3 >= AT_LEAST[algo], finals
