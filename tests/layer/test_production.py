"""Processes in another mode: production leaves bare functions and the same bytes; nonsense is one clear error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsa_cp import stages

ROOT = Path(__file__).resolve().parents[2]


def in_mode(mode: str, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run Python code from the root of the repository, with the mode in its environment."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    env = {**os.environ, "DSA_CONTRACTS": mode, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


CHECKED = """
import torch
from dsa_contracts import ContractError
from dsa_cp.layouts import Zigzag, build_batch
batch = build_batch(Zigzag(), 2, 0, [7])
try:
    stages.rebuild_positions(batch.positions, batch.positions, batch)
except ContractError as error:
    print(error.code)
"""
BARE = """
import dsa_cp.stages as stages
wrapped = [name for name in stages.__all__ if hasattr(getattr(stages, name), "__wrapped__")]
print(wrapped)
"""


@pytest.mark.process
def test_production_has_bare_functions_and_the_bytes_of_development_where_every_stage_is_wrapped() -> None:
    code = f"{BARE}\nfrom tests.support.tiny_path import digest\nprint(*digest())"
    checked, bare = in_mode("development", code + CHECKED, "-O"), in_mode("production", code)
    assert checked.stderr == bare.stderr == ""
    (wrapped, checked_bytes, refused), (none, bare_bytes) = checked.stdout.splitlines(), bare.stdout.splitlines()
    assert (wrapped, none) == (str(stages.__all__), "[]")
    assert refused == "DSA102", "checks do not vanish with asserts"
    assert checked_bytes == bare_bytes
    assert len(bare_bytes.split()) == 4


@pytest.mark.process
def test_a_mode_that_does_not_exist_is_one_clear_error_at_import() -> None:
    done = in_mode("nonsense", "import dsa_cp.stages")
    assert done.returncode == 1
    assert done.stdout == ""
    error = done.stderr.partition("ContractDefinitionError ")[2]
    assert error == (
        "DSA003: DSA_CONTRACTS is 'nonsense'\n  expected  development, values, production\n  try       unset DSA_CONTRACTS\n"
    )
    assert done.stderr.count("Traceback") == 1
