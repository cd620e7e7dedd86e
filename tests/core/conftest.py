"""Fixtures of the contract layer's tests."""

import pytest

from dsa_contracts.core.runtime import guards


@pytest.fixture(params=["torch's guards", "python"])
def both_guards(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case with each of the two ways to compare tensors."""
    if request.param == "python":
        monkeypatch.setattr(guards, "HAS_GUARDS", False)
    else:
        assert guards.HAS_GUARDS
