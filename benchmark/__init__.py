"""Runs, matrices, statistics and reports: the one training loop and what surrounds it."""
