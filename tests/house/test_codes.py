"""No code is dead: each is raised somewhere, and some test names it."""

import re
from pathlib import Path

import pytest

from dsa_contracts import CODES
from dsa_contracts.core.runtime.messages import _KINDS

ROOT = Path(__file__).resolve().parents[2]
TABLES = (ROOT / "dsa_contracts" / "core" / "errors.py", ROOT / "dsa_contracts" / "dsa" / "codes.py")
OWN = [code for code in CODES if code.startswith("DSA")]
"""The codes of this repository; other vocabularies that tests load have letters of their own."""
COMPUTED = {f"DSA{side}{kind:02}" for side in (1, 2) for kind in _KINDS.values()}
"""Codes of one tensor's faults, for arguments and for return values."""


def named_in(*folders: str, leave_out: tuple[Path, ...]) -> set[str]:
    """Every code that a Python file below the folders names, docstrings and comments included."""
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.py") if path not in leave_out)
    return {code for path in files for code in re.findall(r"DSA\d{3}", path.read_text(encoding="utf-8"))}


def raised() -> set[str]:
    """Codes that code passes on: as `code=`, as a default, as an invariant's code or as the code of a brand."""
    text = "\n".join(
        path.read_text(encoding="utf-8") for top in ("dsa_contracts", "src") for path in (ROOT / top).rglob("*.py")
    )
    for table in TABLES:
        listed = table.read_text(encoding="utf-8")
        text = text.replace(listed[listed.index("CODES:") : listed.index("\n}\n")], "")
    outside_docstrings = re.sub(r'"""(?:.|\n)*?"""', "", text)
    return set(re.findall(r'"(DSA\d{3})"', outside_docstrings)) | COMPUTED


@pytest.mark.parametrize("code", OWN)
def test_a_code_is_raised(code: str) -> None:
    assert code in raised()


@pytest.mark.parametrize("code", OWN)
def test_a_code_is_named_by_a_test(code: str) -> None:
    assert code in named_in("tests", leave_out=(Path(__file__),))


def test_no_code_is_named_that_does_not_exist() -> None:
    named = named_in("dsa_contracts", "src", leave_out=TABLES) | COMPUTED
    assert sorted(named - set(CODES)) == []
