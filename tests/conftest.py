"""Settings of the whole suite."""

from hypothesis import settings

# The same examples in every run: a red test is then the change's doing. Timing is not tested.
settings.register_profile("redline", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("redline")
