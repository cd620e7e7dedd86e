"""Programs that mypy must reject, and programs that it must pass.

mypy runs once over all of them. What it says of `fail/NAME.py` is compared with `fail/NAME.out`, without the folder:
`mypy --no-error-summary tests/typing/fail/NAME.py | sed 's,^tests/typing/fail/,,'` makes that file.
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FAIL = sorted((HERE / "fail").glob("*.py"))
PASS = sorted((HERE / "pass").glob("*.py"))
MARK = "# refused"


@pytest.fixture(scope="module")
def said() -> dict[Path, list[str]]:
    """What mypy says of each program, line by line, without the folder."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--no-color-output", "--no-pretty"]
    programs = [str(path.relative_to(ROOT)) for path in (*FAIL, *PASS)]
    done = subprocess.run([*command, *programs], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.stderr == ""
    lines: dict[Path, list[str]] = {path: [] for path in (*FAIL, *PASS)}
    for line in done.stdout.splitlines():
        place, _, rest = line.partition(":")
        path = ROOT / place
        assert path in lines, f"mypy finds a fault outside of the programs: {line}"
        lines[path].append(f"{path.name}:{rest}")
    return lines


def refused_lines(lines: list[str]) -> set[int]:
    return {int(line.split(":")[1]) for line in lines if ": error: " in line}


def marked_lines(path: Path) -> set[int]:
    text = path.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(text, start=1) if line.endswith(MARK)}


@pytest.mark.parametrize("path", FAIL, ids=lambda path: path.stem)
def test_mypy_refuses_and_says_so_as_committed(path: Path, said: dict[Path, list[str]]) -> None:
    expected = path.with_suffix(".out").read_text(encoding="utf-8").splitlines()
    assert said[path] == expected


@pytest.mark.parametrize("path", FAIL, ids=lambda path: path.stem)
def test_mypy_refuses_exactly_the_marked_lines(path: Path, said: dict[Path, list[str]]) -> None:
    assert marked_lines(path)
    assert refused_lines(said[path]) == marked_lines(path)


@pytest.mark.parametrize("path", PASS, ids=lambda path: path.stem)
def test_mypy_passes(path: Path, said: dict[Path, list[str]]) -> None:
    assert said[path] == []


@pytest.mark.parametrize("path", [*FAIL, *PASS], ids=lambda path: path.stem)
def test_a_program_says_what_it_does_and_can_be_imported(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(f"typing_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.__doc__
    assert re.search(r"Any\b|type: ignore|cast\(", path.read_text(encoding="utf-8")) is None


def test_there_is_one_expected_output_for_each_program_that_must_fail() -> None:
    assert [path.stem for path in FAIL] == sorted(path.stem for path in (HERE / "fail").glob("*.out"))
    assert len(FAIL) >= 12
