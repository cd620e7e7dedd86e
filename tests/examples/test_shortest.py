"""The shortest contract: under 25 lines, and it refuses what it is there to refuse."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "shortest.py"


def test_it_has_fewer_than_25_lines_of_code() -> None:
    lines = [line for line in PROGRAM.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) < 25


def test_it_passes_a_right_call_and_refuses_a_second_one() -> None:
    done = subprocess.run([sys.executable, str(PROGRAM)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert done.stderr == ""
    assert done.stdout.splitlines()[:4] == [
        "StageInputError DSA107: scale: x is Scaled, not Plain",
        "  expected  f32[tokens] Contiguous, Mine, Plain",
        "  got       f32[3] strides (1,) cpu",
        "  because   its brand: Mine, Scaled, from scale.scaled",
    ]
