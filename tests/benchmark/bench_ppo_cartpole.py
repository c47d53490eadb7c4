"""CPU time of PPO on CartPole-v1 against Stable-Baselines3 at the same hyperparameters.

One process, one thread, interleaved repeats; Redline writes its metrics and TensorBoard files as in
any run. Prints the ratio and the returns that both reached.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from redline.benchmark import threads

threads.pin()

import torch  # noqa: E402
from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402

from redline.benchmark.arguments import resolve, to_arguments  # noqa: E402
from redline.benchmark.train import train  # noqa: E402

# What rl-baselines3-zoo publishes for PPO on CartPole-v1.
ZOO = to_arguments(
    {
        "n_envs": 8,
        "n_steps": 32,
        "minibatch_size": 256,
        "epochs": 20,
        "gamma": 0.98,
        "gae_lambda": 0.8,
        "lr": 1e-3,
        "lr_decay": True,
        "clip.schedule": "linear",
    }
)


def run_redline(steps: int, seed: int) -> tuple[float, float]:
    arguments = ["--task", "CartPole-v1", "--steps", str(steps), "--seed", str(seed)]
    arguments += [*ZOO, "--evals", "0", "--eval-episodes", "1"]
    resolved = resolve("ppo", arguments)
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        train(resolved, Path(folder))
        spent = time.process_time() - start
        last = (Path(folder) / "metrics.jsonl").read_text().splitlines()[-1]
    return spent, float(last.split('"rollout/ep_rew_mean": ')[1].split(",")[0])


def run_sb3(steps: int, seed: int) -> tuple[float, float]:
    env = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
    start = time.process_time()
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        learning_rate=lambda remaining: 1e-3 * remaining,
        clip_range=lambda remaining: 0.2 * remaining,
        seed=seed,
        device="cpu",
    )
    model.learn(steps)
    spent = time.process_time() - start
    rewards = [episode["r"] for episode in model.ep_info_buffer]
    return spent, sum(rewards) / len(rewards)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run_redline(2_000, 0)
    run_sb3(2_000, 0)
    ratios = []
    for seed in range(arguments.repeats):
        ours, our_return = run_redline(arguments.steps, seed)
        theirs, their_return = run_sb3(arguments.steps, seed)
        ratios.append(theirs / ours)
        print(
            f"seed {seed}: redline {ours:.2f} s (return {our_return:.0f}), "
            f"sb3 {theirs:.2f} s (return {their_return:.0f}), ratio {ratios[-1]:.2f}"
        )
    print(
        f"ppo/CartPole-v1/zoo: ratio median {statistics.median(ratios):.2f}, "
        f"min {min(ratios):.2f}, max {max(ratios):.2f}, repeats {len(ratios)}"
    )


if __name__ == "__main__":
    main()
