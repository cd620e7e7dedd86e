"""Small trees of files for the rules: a house that breaks none, and what a test changes in it."""

from pathlib import Path

from dsa_cp.tools.review.rules import check_paths

STUB = '''"""Contract of `shift`."""

from dsa_contracts import CpBatch, Ten, contract
from dsa_contracts.core.marks import BF16, Contiguous, Plain
from dsa_contracts.dsa.dims import KvLoraRank
from dsa_contracts.dsa.invariants import scale_is_positive
from dsa_contracts.dsa.states import Local
from dsa_contracts.dsa.typevars import L, N


@contract(returns=("moved",), requires=(scale_is_positive("scale"),))
def shift(
    x: Ten[Local[L], Plain, BF16, Contiguous, N, KvLoraRank],
    scale: float,
    batch: CpBatch[L],
) -> Ten[Local[L], Plain, BF16, Contiguous, N, KvLoraRank]:
    """Rows are moved.

    Raises:
        StageInputError: DSA102 to DSA104, DSA112.
    """
'''
STAGE = '''"""Reference of `shift`."""

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, Ten, brand, stage
from dsa_contracts.core.marks import BF16, Contiguous, Plain
from dsa_contracts.dsa.dims import KvLoraRank
from dsa_contracts.dsa.states import Local
from dsa_contracts.dsa.typevars import L, N


@stage(contracts.shift)
def shift(
    x: Ten[Local[L], Plain, BF16, Contiguous, N, KvLoraRank],
    scale: float,
    batch: CpBatch[L],
) -> Ten[Local[L], Plain, BF16, Contiguous, N, KvLoraRank]:
    """See the contract."""
    return brand(x + scale)
'''
INVARIANTS = '''"""Invariants."""


def scale_is_positive(name):
    """A scale is positive."""
    return name, "DSA112"
'''
TEST = '''"""Tests of `shift`."""

CODES = ("DSA102", "DSA103", "DSA104")


def test_shift():
    assert CODES and "DSA112"
'''
HOUSE = {
    "dsa_contracts/stages/shift.py": STUB,
    "dsa_contracts/invariants.py": INVARIANTS,
    "src/dsa_cp/stages/shift.py": STAGE,
    "src/dsa_cp/layer/path.py": '"""The path."""\n',
    "tests/stages/test_shift.py": TEST,
}


def build(root: Path, **files: str) -> Path:
    """A house with these files beside or instead of its own; `a__b` is `a/b.py`, an empty text takes a file away."""
    named = {f"{name.replace('__', '/')}.py": text for name, text in files.items()}
    for name, text in {**HOUSE, **named}.items():
        if text:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return root


def lines(root: Path, *paths: str) -> list[str]:
    """What the rules say of a tree, its own path left out."""
    report = check_paths([root / path for path in paths] or [root])
    return [finding.as_line.replace(f"{root}/", "") for finding in report.findings]


def edited(text: str, *edits: tuple[str, str]) -> str:
    """A text with each first text, which stands in it once, replaced by the second."""
    for old, new in edits:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    return text
