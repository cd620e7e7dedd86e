"""The run gives the same bytes in every mode, and production leaves no wrapper."""

import json
import os
import subprocess
import sys

import pytest

FLAGS = ["run", "--model", "tiny", "--layers", "2", "--batches", "1", "--chunk-tokens", "24", "--cp-size", "2", "--json"]
MODES = ("development", "values", "production")


def start_in(mode: str) -> subprocess.Popen[str]:
    """Start the command in a process of its own in a mode: most of what it takes is importing torch."""
    code = "import sys; from dsa_cp.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "DSA_CONTRACTS": mode, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *FLAGS]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def cells() -> dict[str, list[dict[str, object]]]:
    """The same run in every mode, all at once."""
    started = {mode: start_in(mode) for mode in MODES}
    printed = {mode: process.communicate(timeout=120)[0] for mode, process in started.items()}
    assert [process.returncode for process in started.values()] == [0, 0, 0]
    return {mode: [json.loads(line) for line in text.splitlines()] for mode, text in printed.items()}


def test_all_modes_leave_the_same_kv_bytes(cells: dict[str, list[dict[str, object]]]) -> None:
    digests = {mode: [cell["kv_sha256"] for cell in cells[mode]] for mode in MODES}
    assert digests["production"] == digests["development"] == digests["values"]
    assert len(set(digests["production"])) == 2, "two row formats, each the same in both layouts"


def test_all_modes_agree_with_one_rank(cells: dict[str, list[dict[str, object]]]) -> None:
    assert all(cell["kv_bytes_equal"] and cell["output_equal"] for mode in MODES for cell in cells[mode])


def test_production_checks_nothing_and_values_checks_more(cells: dict[str, list[dict[str, object]]]) -> None:
    counts = {mode: [cell["checks_run"] for cell in cells[mode]] for mode in MODES}
    assert counts["production"] == [0, 0, 0, 0]
    assert all(
        int(str(more)) > int(str(less)) > 0 for more, less in zip(counts["values"], counts["development"], strict=True)
    )
