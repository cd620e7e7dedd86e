"""Without z3 (extra `prove`) only the tests of what imports no z3 are collected, and the header says so."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch

HAS_Z3 = find_spec("z3") is not None

collect_ignore = (
    []
    if HAS_Z3
    else [
        "test_right.py",
        "test_wrong.py",
        "test_broken_formulas.py",
        "test_broken_layouts.py",
        "test_adding_a_layout.py",
        "test_agreement.py",
        "test_prove_command.py",
    ]
)


def pytest_report_header() -> str | None:
    return None if HAS_Z3 else "z3 is not installed: tests of proofs are left out"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tensors of ten elements are not worth a second thread, which costs milliseconds on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
