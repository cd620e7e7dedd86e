"""Programs that mypy must reject, and programs that it must pass.

mypy runs once over all of them. What it says of `fail/NAME.py` is compared with `fail/NAME.out`, without the folder:
`mypy --no-error-summary tests/typing/fail/NAME.py | sed 's,^tests/typing/fail/,,'` makes that file.
"""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dsa_contracts.stages as contracts
from dsa_contracts import contract_of
from tests.support.swaps import SWAPS

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


def test_every_pair_of_arguments_of_equal_dtype_has_a_program_that_swaps_them() -> None:
    assert [path.stem for path in FAIL if path.stem.startswith("swap_")] == sorted(
        "_".join(("swap", *swap)) for swap in SWAPS
    )
    assert ("attend", "causal_lens", "request_of_row") in SWAPS
    assert ("gather_write_kv_and_index", "pool", "index_pool") in SWAPS
    assert ("write_kv", "kv", "loc") not in SWAPS


@pytest.mark.parametrize(("stage", "first", "second"), SWAPS)
def test_such_a_program_calls_the_stage_twice_and_only_the_swap_is_refused(stage: str, first: str, second: str) -> None:
    path = HERE / "fail" / f"swap_{stage}_{first}_{second}.py"
    (layer,) = (node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef))
    calls = [node.value for node in layer.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    assert [ast.unparse(call.func) for call in calls] == [stage, stage]
    right, wrong = ([ast.unparse(arg) for arg in call.args] for call in calls)
    names = contract_of(getattr(contracts, stage)).names
    one, other = names.index(first), names.index(second)
    right[one], right[other] = right[other], right[one]
    assert wrong == right
    assert marked_lines(path) == {calls[1].lineno}
