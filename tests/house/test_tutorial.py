"""What the tutorial shows is what its programs say: each is run, and the whole is read by mypy.

Paths and line numbers of messages may differ; nothing else may.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dsa_contracts.core.extensions import GROUPS
from dsa_contracts.core.modes import VARIABLE
from tests.support.tutorial_blocks import REFUSED, TUTORIAL, Program, blocks_of, programs_of, said_by

ROOT = TUTORIAL.parents[1]
DOCUMENT = TUTORIAL.read_text(encoding="utf-8")
PROGRAMS = programs_of(DOCUMENT)
SHORTEST = (ROOT / "examples" / "shortest.py").read_text(encoding="utf-8")


def without_places(text: str) -> list[str]:
    """Return lines without the paths and line numbers in them, and without spaces at their ends."""
    return [re.sub(r"[^\s:]+\.py:\d+", "PLACE", line).rstrip() for line in text.splitlines()]


def run(*command: str, cwd: Path) -> str:
    """Return what a program prints in the default mode; it must print no error."""
    own = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, env=own, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each program of the tutorial prints, in a process of its own."""
    program_file = tmp_path_factory.mktemp("tutorial") / "tutorial.py"
    found: list[str] = json.loads(run("-m", "tests.support.tutorial_blocks", str(TUTORIAL), str(program_file), cwd=ROOT))
    return found


def test_the_first_program_is_the_shortest_contract_and_has_under_25_lines_that_say_something() -> None:
    assert PROGRAMS[0].source == SHORTEST
    assert len([line for line in SHORTEST.splitlines() if line.strip()]) < 25


@pytest.mark.parametrize("at", range(len(PROGRAMS)))
def test_a_program_prints_what_the_tutorial_says_that_it_prints(at: int, said: list[str]) -> None:
    assert len(said) == len(PROGRAMS)
    assert without_places(said[at]) == without_places(PROGRAMS[at].output or "")


def test_mypy_refuses_what_the_tutorial_says_and_nothing_else(tmp_path: Path) -> None:
    program_file = tmp_path / "tutorial.py"
    program_file.write_text("".join(program.source for program in PROGRAMS), encoding="utf-8")
    options = ("--strict", "--no-error-summary", "--no-color-output", "--no-pretty")
    (shown,) = [block.text for block in blocks_of(DOCUMENT) if block.language == "console"]
    command, _, output = shown.partition("\n")
    assert command == "$ mypy --strict tutorial.py"
    found = run("-m", "mypy", *options, str(program_file), cwd=ROOT)
    assert without_places(found) == without_places(output)
    (line,) = re.findall(r"tutorial\.py:(\d+): error", found)
    assert (
        program_file.read_text(encoding="utf-8").splitlines(keepends=True)[int(line) - 1] == f"double_rows(tokens){REFUSED}"
    )


def test_the_entry_points_shown_are_those_of_all_groups() -> None:
    (shown,) = [block.text for block in blocks_of(DOCUMENT) if block.language == "toml"]
    assert list(tomllib.loads(shown)["project"]["entry-points"]) == list(GROUPS)


def test_every_file_that_the_tutorial_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)", DOCUMENT)
    assert links
    assert [link for link in links if not (TUTORIAL.parent / link).exists()] == []


def test_no_word_of_the_vocabulary_that_this_package_has_itself_is_used() -> None:
    assert "dsa_contracts.dsa" not in DOCUMENT
    assert "dsa_contracts.stages" not in DOCUMENT


RAISES = "from dsa_contracts import ContractError\nraise ContractError('no')"


def test_a_fault_counts_as_printed_only_where_the_program_says_that_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    assert said_by([Program("x = 1\n", None), Program(f"{RAISES}{REFUSED}", None)], path) == [
        "",
        "ContractError DSA001: no\n",
    ]
    with pytest.raises(Exception, match="ContractError DSA001: no"):
        said_by([Program(f"{RAISES}\n", None)], path)
    assert said_by([Program(f"x = 1{REFUSED}", None)], path) == ["nothing was refused\n"]
