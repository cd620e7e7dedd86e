"""Fixtures of the contract layer's tests."""

import pytest

from dsa_contracts.core.runtime import guards as tensor_guard


@pytest.fixture(params=["torch's guards", "python"])
def both_guards(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case with each of the two ways to compare tensors."""
    if request.param == "python":
        monkeypatch.setattr(tensor_guard, "HAS_GUARDS", False)
    else:
        assert tensor_guard.HAS_GUARDS
