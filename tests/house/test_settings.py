"""No dead settings: what pyproject.toml and mypy.ini name is there."""

import ast
import configparser
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MODULE_OF = {"z3-solver": "z3", "flashinfer-python": "flashinfer", "pytest-xdist": "xdist"}
"""Distributions whose module has another name."""
NOT_IMPORTED = frozenset({"pytest-xdist", "mypy", "ruff", "numpy"})
"""What the Makefile runs, and what stands behind `Tensor.numpy`."""


def python_files() -> list[Path]:
    return [path for top in ("dsa_contracts", "src", "tests") for path in (ROOT / top).rglob("*.py")]


@cache
def imported_anywhere() -> frozenset[str]:
    """First parts of all modules that are imported, and of those that `import_module` is given as a text."""
    found = set()
    for path in python_files():
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
        found |= set(re.findall(r"import_module\(f?\"(\w+)", text))
    return frozenset(found)


def test_every_library_that_can_be_installed_is_imported() -> None:
    extras = PROJECT["project"]["optional-dependencies"].values()
    requirements = [*PROJECT["project"]["dependencies"], *(one for extra in extras for one in extra)]
    named = {re.split(r"[<>=\[]", one)[0] for one in requirements}
    assert "torch" in named
    imported = imported_anywhere() - sys.stdlib_module_names
    assert sorted(name for name in named - NOT_IMPORTED if MODULE_OF.get(name, name) not in imported) == []


@pytest.mark.parametrize("pattern", PROJECT["tool"]["ruff"]["lint"]["per-file-ignores"])
def test_every_pattern_of_the_linter_has_a_file(pattern: str) -> None:
    assert next(ROOT.glob(pattern), None) is not None


def test_every_section_of_the_type_checker_has_a_module() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "mypy.ini")
    names = [name.removeprefix("mypy-").removesuffix(".*") for name in settings.sections() if name != "mypy"]
    own = [name for name in names if name.startswith("dsa_")]
    assert own
    missing = [
        name
        for name in own
        if not ((ROOT / name.replace(".", "/")).is_dir() or (ROOT / "src" / name.replace(".", "/")).is_dir())
    ]
    assert missing == []
    assert sorted(set(names) - set(own) - imported_anywhere()) == []


def test_every_folder_of_the_packages_is_there() -> None:
    build = PROJECT["tool"]["hatch"]["build"]["targets"]
    wanted = [*build["wheel"]["packages"], *(name.lstrip("/") for name in build["sdist"]["include"])]
    assert [name for name in wanted if not (ROOT / name).exists()] == []
