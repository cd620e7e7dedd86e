"""The rules that keep the house, read off syntax trees: nothing that is under review is imported."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsa_cp.tools.review.rules.branches import CONTRACT_BRANCH, PATH_BRANCH
from dsa_cp.tools.review.rules.findings import Finding, Rule
from dsa_cp.tools.review.rules.getters import HIDDEN_INPUT
from dsa_cp.tools.review.rules.hints import POSTPONED, UNRESOLVED
from dsa_cp.tools.review.rules.imports import DIRECTION, ONE_PLACE
from dsa_cp.tools.review.rules.lengths import LONG_FUNCTION, NO_PYTHON
from dsa_cp.tools.review.rules.listed_codes import UNLISTED_CODE, UNTESTED_CODE
from dsa_cp.tools.review.rules.names import ONE_CLASS, ONE_MODULE
from dsa_cp.tools.review.rules.sources import Source, read_tree
from dsa_cp.tools.review.rules.stage_files import SECOND_FILE, THREE_PLACES, UTILS
from dsa_cp.tools.review.rules.untied_dims import UNTIED_DIM

__all__ = ["RULES", "Finding", "Report", "Rule", "check_paths"]

RULES: tuple[Rule, ...] = (
    NO_PYTHON,
    SECOND_FILE,
    CONTRACT_BRANCH,
    PATH_BRANCH,
    UTILS,
    HIDDEN_INPUT,
    DIRECTION,
    ONE_PLACE,
    POSTPONED,
    UNRESOLVED,
    UNTIED_DIM,
    THREE_PLACES,
    UNTESTED_CODE,
    LONG_FUNCTION,
    UNLISTED_CODE,
    ONE_MODULE,
    ONE_CLASS,
)
"""All rules, in the order of their codes."""


@dataclass(frozen=True)
class Report:
    """What a review of some paths found.

    Attributes:
        findings: in the order of their places.
        files: how many files were looked at.
        skipped: codes of the rules that were not applied, since the files do not stand in a house.
    """

    findings: tuple[Finding, ...]
    files: int
    skipped: tuple[str, ...]


def check_paths(paths: Sequence[Path]) -> Report:
    """Apply the rules to the files under some paths.

    Raises:
        ArgumentError: DSA602, a path does not exist, is no Python file, or cannot be read.
    """
    tree = read_tree(paths)
    skipped = tuple(rule.code for rule in RULES if rule.needs_house and tree.house is None)
    found = {found for rule in RULES if rule.code not in skipped for found in rule.check(tree)}
    wanted = [source for source in tree.sources if _is_wanted(source, paths)]
    names = {source.shown for source in wanted}
    return Report(tuple(sorted(finding for finding in found if finding.path in names)), len(wanted), skipped)


def _is_wanted(source: Source, paths: Sequence[Path]) -> bool:
    resolved = source.path.resolve()
    return any(resolved.is_relative_to(path.resolve()) for path in paths)
