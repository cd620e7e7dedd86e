"""Rules about files: one file a stage in each of three places, and nothing called utils."""

import re
from collections.abc import Iterator

from dsa_cp.tools.review.rules.findings import Finding, Rule, finding
from dsa_cp.tools.review.rules.sources import Source, Tree
from dsa_cp.tools.review.rules.stubs import STAGE, bound_functions

CONTRACTS = ("dsa_contracts", "stages")
IMPLEMENTATIONS = ("src", "dsa_cp", "stages")
TESTS = ("tests", "stages")
_SUFFIX = re.compile(r"_(?:v?\d+|fast|slow|new|old|orig|opt|optimi[sz]ed|alt|copy|backup|tmp|temp|legacy|impl)$")
_UTILS = re.compile(r"(?:^|_)utils?(?:_|$)")


def stage_stems(tree: Tree) -> list[str]:
    """Return the names of the stages: the files of the contracts' folder that hold a contract of their name."""
    files = tree.under(*CONTRACTS)
    return [file.stem for file in files if file.stem in [bound.function.name for bound in bound_functions(file)]]


def second_files(tree: Tree) -> Iterator[Finding]:
    """Yield files that are a stage's second: named after it, or bound to it beside another of the same folder."""
    stages = stage_stems(tree)
    for source in tree.sources:
        owner = _owner(source, stages)
        if owner is not None:
            yield finding(source, None, "REV001", f"{source.path.name} is a second file of stage {owner}; edit {owner}.py")
    for source in tree.under(*IMPLEMENTATIONS):
        for bound in bound_functions(source):
            if bound.kind == STAGE and bound.stage_name != source.stem:
                text = f"{bound.function.name} is bound to stage {bound.stage_name}, which has its file {bound.stage_name}.py"
                yield finding(source, bound.function, "REV001", text)


def _owner(source: Source, stages: list[str]) -> str | None:
    """Return the stage that a file is named after without being its file, None where it is none."""
    stem = source.stem.removeprefix("test_") if source.is_test else source.stem
    bare = _SUFFIX.sub("", stem)
    if bare != stem and bare in stages:
        return bare
    if source.place[:-1] in (CONTRACTS, IMPLEMENTATIONS) and stem not in stages:
        return next((stage for stage in stages if stem.startswith(f"{stage}_")), None)
    return None


def missing_files(tree: Tree) -> Iterator[Finding]:
    """Yield stages that do not have their contract, their implementation and their test under one name."""
    stages = stage_stems(tree)
    for source in tree.under(*CONTRACTS):
        stage = source.stem
        if stage == "__init__" or _owner(source, stages) is not None:
            continue
        if stage not in [bound.function.name for bound in bound_functions(source)]:
            yield finding(source, None, "REV011", f"no contract {stage} stands in {source.path.name}")
        implementation = tree.at(*IMPLEMENTATIONS, f"{stage}.py")
        if implementation is None:
            yield finding(source, None, "REV011", f"stage {stage} has no src/dsa_cp/stages/{stage}.py")
        elif stage not in [bound.stage_name for bound in bound_functions(implementation)]:
            yield finding(implementation, None, "REV011", f"nothing in {implementation.path.name} is bound to stage {stage}")
        if tree.at(*TESTS, f"test_{stage}.py") is None:
            yield finding(source, None, "REV011", f"stage {stage} has no tests/stages/test_{stage}.py")
    for source in tree.under(*IMPLEMENTATIONS):
        is_known = tree.at(*CONTRACTS, source.path.name) is not None or _owner(source, stages) is not None
        if bound_functions(source) and not is_known:
            text = f"stage {source.stem} has no dsa_contracts/stages/{source.stem}.py"
            yield finding(source, None, "REV011", text)


def utils_files(tree: Tree) -> Iterator[Finding]:
    """Yield files and folders whose name says nothing."""
    for source in tree.sources:
        for part in (*source.place[:-1], source.stem):
            if _UTILS.search(part.lower()):
                text = f"{part} says nothing of what is in it; name it after that"
                yield finding(source, None, "REV004", text)
                break


SECOND_FILE = Rule(
    "REV001",
    "a stage has one file in each place",
    "a second file (_v2, _fast) is a second truth: fixes reach one of the two",
    True,
    second_files,
)
UTILS = Rule(
    "REV004", "nothing is called utils", "what belongs nowhere collects there, and is found by nobody", False, utils_files
)
THREE_PLACES = Rule(
    "REV011",
    "a stage has a contract, an implementation and a test of the same name",
    "who knows the name of a stage knows its three files",
    True,
    missing_files,
)
