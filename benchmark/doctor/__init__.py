"""Findings about a run: what its metrics say is wrong with it, with the numbers they rest on."""
