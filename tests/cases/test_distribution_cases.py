"""Distributions as public reports describe them going wrong."""

import numpy as np
from closeness import close

from redline.algorithms.core.distributions import MultiCategorical
from redline.algorithms.core.gaussians import DiagGaussian
from redline.algorithms.core.types import Params


def normal(mean: float, std: float, d: int = 1) -> Params:
    return np.full((1, d), mean), np.full((1, d), np.log(std))


def test_case_10_the_gaussian_kl_and_its_direction() -> None:
    # openai/spinningup#443, #264: KL(old||new) = ln 2 + (1 + 1) / 8 - 1 / 2.
    gaussian = DiagGaussian(1)
    old, new = normal(0.0, 1.0), normal(1.0, 2.0)
    close(gaussian.kl(np, old, new), np.array([0.443147]), rtol=1e-5)
    close(gaussian.kl(np, new, old), np.array([1.306853]), rtol=1e-5)
    assert gaussian.kl(np, new, new)[0] == 0.0
    three = DiagGaussian(3)
    kl = three.kl(np, normal(0.0, 1.0, 3), normal(1.0, 2.0, 3))
    close(kl, np.array([1.329442]), rtol=1e-5)


def test_case_14_one_number_per_sample_over_the_action_dimensions() -> None:
    # Unity-Technologies/ml-agents#3607, ray-project/ray#7009.
    multi = MultiCategorical((2, 3))
    params = (np.log([[0.5, 0.5, 0.2, 0.3, 0.5]]),)
    action = np.array([[1, 2]])
    close(multi.log_prob(np, params, action), np.array([-1.386294]), rtol=1e-6)
    close(multi.entropy(np, params), np.array([1.722800]), rtol=1e-6)
    gaussian = DiagGaussian(3)
    at_the_mean = normal(0.7, 1.0, 3)
    close(gaussian.log_prob(np, at_the_mean, at_the_mean[0]), np.array([-2.756816]), rtol=1e-6)
    close(gaussian.entropy(np, at_the_mean), np.array([4.256816]), rtol=1e-6)


def test_case_8_the_log_prob_belongs_to_the_raw_sample() -> None:
    # thu-ml/tianshou#312: N(0.5, 1), sample 2.0; the box that clips it plays no part.
    close(
        DiagGaussian(1).log_prob(np, normal(0.5, 1.0), np.array([[2.0]])),
        np.array([-2.043939]),
        rtol=1e-6,
    )
