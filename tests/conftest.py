"""Settings of all tests."""

from hypothesis import settings

# No test asserts on a time: a slow machine would fail examples that are right.
settings.register_profile("house", deadline=None)
settings.load_profile("house")
