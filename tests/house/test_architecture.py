"""`docs/architecture.md` draws the house as it stands, and its table leads to files that exist."""

import ast
import re
from pathlib import Path

from dsa_cp.tools.review.rules.imports import layer_of
from dsa_cp.tools.stage_table import ROOT

PAGE = ROOT / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
NODE = re.compile(r"(\w+)\[\"([\w.]+)\"\]")
ARROW = re.compile(r"^\s+(\w+)\S* --> (\w+)", re.MULTILINE)
NUM_TASKS = 8


def drawn() -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The packages of the drawing by their short name, and its arrows from who imports to what is imported."""
    picture = TEXT.partition("```mermaid\n")[2].partition("```")[0]
    packages = dict(NODE.findall(picture))
    return packages, [(packages[start], packages[end]) for start, end in ARROW.findall(picture)]


def packages_of_the_house() -> set[str]:
    """Every package right under one of the two roots."""
    roots = (ROOT / "dsa_contracts", ROOT / "src" / "dsa_cp")
    folders = [folder for root in roots for folder in root.iterdir() if any(folder.glob("*.py"))]
    return {f"{folder.parent.name}.{folder.name}" for folder in folders}


def imported_packages(package: str) -> set[str]:
    """The packages that the modules of a package import, in either spelling."""
    folder = ROOT / ("src" if package.startswith("dsa_cp") else "") / Path(*package.split("."))
    found = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {".".join(module.split(".")[:2]) for module in found}


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, its head left out."""
    section = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def paths(text: str) -> list[str]:
    """The paths of files that a text names in backticks, as they stand in the repository."""
    named = re.findall(r"`([\w./]+/[\w./]+\.\w+)`", text)
    return [f"dsa_contracts/{path}" if path.startswith("core/") else path for path in named]


def test_every_package_is_drawn_and_described() -> None:
    packages, _ = drawn()
    described = set(re.findall(r"^\| `([\w.]+)` \|", TEXT, re.MULTILINE))
    assert set(packages.values()) == packages_of_the_house()
    assert described == packages_of_the_house()


def test_every_arrow_points_down_as_the_rule_of_imports_has_it() -> None:
    _, arrows = drawn()
    wrong = [
        (start, end)
        for start, end in arrows
        if (above := layer_of(start)) is None or (below := layer_of(end)) is None or above < below
    ]
    assert arrows
    assert wrong == []


def test_every_arrow_is_an_import_of_the_code() -> None:
    _, arrows = drawn()
    assert [(start, end) for start, end in arrows if end not in imported_packages(start)] == []


def test_every_import_of_the_code_is_an_arrow_or_a_way_along_arrows() -> None:
    packages, arrows = drawn()
    reached = {package: {package} for package in packages.values()}
    for _ in packages:
        for start, end in arrows:
            reached[start] |= reached[end]
    missing = {(package, one) for package in reached for one in imported_packages(package) if one in reached}
    assert sorted((start, end) for start, end in missing if end not in reached[start]) == []


def test_the_table_of_tasks_has_eight_rows_with_one_link_each_to_a_file_that_exists() -> None:
    rows = rows_of("Where to start")
    assert [row[0] for row in rows] == [str(number) for number in range(1, NUM_TASKS + 1)]
    for row in rows:
        links = re.findall(r"\]\(([^)]+)\)", " ".join(row))
        assert len(links) == 1, row
        assert (PAGE.parent / links[0]).is_file(), row


def test_every_task_names_a_test() -> None:
    assert [row for row in rows_of("Where to start") if not re.fullmatch(r"`tests/\S+/test_\w+\.py`", row[-1])] == []


def test_every_path_that_the_page_names_exists() -> None:
    assert paths(TEXT)
    assert [path for path in paths(TEXT) if not (ROOT / path).is_file()] == []


def test_every_word_is_explained_in_one_line() -> None:
    words = [row[0] for row in rows_of("Words")]
    assert len(words) == len(set(words))
    asked = {"scope", "brand", "mark", "call cache", "guard", "KV cache", "slot mapping", "delivery", "placement", "plan"}
    assert asked <= set(words)
