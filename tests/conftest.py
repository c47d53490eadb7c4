"""Settings of the whole suite."""

import pytest
from hypothesis import settings

from redline.algorithms import registry

# The same examples in every run: a red test is then the change's doing. Timing is not tested.
settings.register_profile("redline", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("redline")


@pytest.fixture(autouse=True)
def own_recipes(monkeypatch):
    """What a test registers is gone with it, whichever tests share its process."""
    registry.discover()
    for known in ("_RECIPES", "_PLUGINS"):
        monkeypatch.setattr(registry, known, dict(getattr(registry, known)))
