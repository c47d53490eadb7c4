"""Control track: Gymnasium tasks, the sampler, and small networks for policy and critic."""
