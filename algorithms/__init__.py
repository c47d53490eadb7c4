"""Policy-optimisation methods: one recipe per file, all built on `redline.algorithms.core`."""
