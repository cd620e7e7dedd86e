"""mypy --strict passes the example packages, and refuses the program of each that is there to be refused.

mypy runs once over all of them. What it says of `refused/NAME.py` is compared with `refused/NAME.out`, without the folder.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [ROOT / "examples" / name for name in ("expert_dispatch", "ring_attention", "ulysses")]
REFUSED = [path for package in PACKAGES for path in sorted((package / "refused").glob("*.py"))]
OTHERS = [ROOT / "examples" / "shortest.py", *(path for package in PACKAGES for path in sorted(package.glob("*.py")))]


@pytest.fixture(scope="module")
def said() -> dict[Path, list[str]]:
    """What mypy says of each module, line by line, without the folder."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-color-output", "--no-pretty"]
    programs = [str(path.relative_to(ROOT)) for path in (*REFUSED, *OTHERS)]
    done = subprocess.run([*command, *programs], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.stderr == ""
    lines: dict[Path, list[str]] = {path: [] for path in (*REFUSED, *OTHERS)}
    for line in done.stdout.splitlines():
        place, _, rest = line.partition(":")
        path = ROOT / place
        assert path in lines, f"mypy finds a fault outside of the examples: {line}"
        lines[path].append(f"{path.name}:{rest}")
    return lines


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.stem)
def test_mypy_refuses_the_marked_lines_and_says_so_as_committed(path: Path, said: dict[Path, list[str]]) -> None:
    assert said[path] == path.with_suffix(".out").read_text(encoding="utf-8").splitlines()
    text = path.read_text(encoding="utf-8").splitlines()
    marked = {number for number, line in enumerate(text, start=1) if line.endswith("# refused")}
    assert {int(line.split(":")[1]) for line in said[path] if ": error: " in line} == marked != set()


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_mypy_passes_everything_else(path: Path, said: dict[Path, list[str]]) -> None:
    assert said[path] == []


def test_the_examples_use_the_core_alone_and_hide_nothing_from_mypy() -> None:
    assert [package.name for package in PACKAGES] == sorted({path.parent.parent.name for path in REFUSED})
    for path in (*REFUSED, *OTHERS[1:]):  # the shortest one shows a call that mypy refuses
        text = path.read_text(encoding="utf-8")
        assert re.search(r"Any\b|type: ignore|cast\(", text) is None
        imported = re.findall(r"^(?:from|import) (\S+)", text, re.MULTILINE)
        own = ("dsa_contracts.core", "examples", "torch")
        ours = [module for module in imported if not module.startswith(own)]
        assert all(module.partition(".")[0] in sys.stdlib_module_names for module in ours), (path, ours)
