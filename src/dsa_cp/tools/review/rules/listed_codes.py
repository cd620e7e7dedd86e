"""Rules about codes: a stage lists what it raises, and a test shows each."""

import ast
import re
from collections.abc import Iterator

from dsa_contracts.core.errors import CODES
from dsa_cp.tools.review.docstrings import parse_docstring
from dsa_cp.tools.review.rules.findings import Finding, Rule, finding
from dsa_cp.tools.review.rules.sources import Source, Tree
from dsa_cp.tools.review.rules.stage_files import CONTRACTS, TESTS, stage_stems
from dsa_cp.tools.review.rules.stubs import CONTRACT, BoundFunction, all_bound, bound_functions, last_name, texts

_CODE = re.compile(r"DSA\d{3}")
EVERY_STAGE = "test_every_stage.py"
"""The test of what all stages refuse alike."""


def listed(bound: BoundFunction) -> list[str]:
    """Return the codes that a stub's docstring lists, ranges written out."""
    raises = parse_docstring(ast.get_docstring(bound.function) or "").raises
    return list(dict.fromkeys(code for codes in raises.values() for code in codes))


def unlisted(tree: Tree) -> Iterator[Finding]:
    """Yield codes of a contract's invariants that its docstring does not list, and listed codes that do not exist."""
    made = {function.name: set(_CODE.findall(" ".join(texts(function)))) for s in tree.code for function in s.functions}
    for bound in all_bound(tree, CONTRACT):
        said = listed(bound)
        for code in sorted(_invariant_codes(bound, made)):
            if code not in said:
                text = f"{bound.function.name}: Raises does not list {code}, which an invariant of it has"
                yield finding(bound.source, bound.function, "REV015", text)
        for code in dict.fromkeys(_CODE.findall(ast.get_docstring(bound.function) or "")):
            if code not in CODES:
                yield finding(bound.source, bound.function, "REV015", f"{bound.function.name}: there is no code {code}")


def _invariant_codes(bound: BoundFunction, made: dict[str, set[str]]) -> set[str]:
    """Return the codes of a contract's invariants: as their factories have them, or as they are given here."""
    found: set[str] = set()
    for keyword in bound.call.keywords:
        if keyword.arg in ("requires", "ensures"):
            found |= set(_CODE.findall(" ".join(texts(keyword.value))))
            for node in ast.walk(keyword.value):
                if isinstance(node, ast.Call):
                    found |= made.get(last_name(node.func) or "", set())
    return found


def untested(tree: Tree) -> Iterator[Finding]:
    """Yield listed codes that no test of the stage, and no test of every stage, names."""
    stages = stage_stems(tree)
    for source in tree.under(*CONTRACTS):
        own = [test for test in tree.under(*TESTS) if _tests(test, source.stem, stages)]
        shown = {code for test in own for code in tested_codes(test)}
        for bound in bound_functions(source) if tree.at(*TESTS, f"test_{source.stem}.py") else ():
            for code in listed(bound):
                if code not in shown:
                    text = f"{bound.function.name}: no test in tests/stages/test_{source.stem}.py names {code}"
                    yield finding(source, bound.function, "REV012", text)


def _tests(test: Source, stage: str, stages: list[str]) -> bool:
    """Whether a file tests a stage: it has its name, or its name and more without being another stage's."""
    if test.path.name == EVERY_STAGE or test.stem == f"test_{stage}":
        return True
    return test.stem.startswith(f"test_{stage}_") and test.stem.removeprefix("test_") not in stages


def tested_codes(source: Source) -> set[str]:
    """Return the codes that tests of a file name: in a test, in its decorators, or in a table of the module that it uses."""
    tables = {}
    for statement in source.tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                if isinstance(target, ast.Name):
                    tables[target.id] = set(_CODE.findall(" ".join(texts(statement.value))))
    found: set[str] = set()
    for function in source.functions:
        if function.name.startswith("test_"):
            said = ast.get_docstring(function, clean=False)
            found |= set(_CODE.findall(" ".join(text for text in texts(function) if text != said)))
            for node in ast.walk(function):
                found |= tables.get(node.id, set()) if isinstance(node, ast.Name) else set()
    return found


UNTESTED_CODE = Rule(
    "REV012",
    "each code that a stage lists is named by a test of that stage",
    "a refusal that no test provokes may have stopped working",
    True,
    untested,
)
UNLISTED_CODE = Rule(
    "REV015",
    "a stub lists the codes of its invariants, and only codes that exist",
    "who handles an error looks there for the codes to expect",
    False,
    unlisted,
)
