"""Rules about branches: contracts do not know backends, and the path does not decide what the plan has decided."""

import ast
import re
from collections.abc import Iterator

from dsa_contracts.dsa.row_formats import RowFormat
from dsa_cp.planner.backends import CAPABILITIES
from dsa_cp.tools.review.contract_facts import ROW_FORMATS
from dsa_cp.tools.review.rules.findings import Finding, Rule, finding
from dsa_cp.tools.review.rules.sources import Source, Tree
from dsa_cp.tools.review.rules.stubs import CONTRACT, bound_functions

BACKENDS = frozenset(CAPABILITIES) | {"flashinfer", "triton", "flash_mla"}
_FORMATS = frozenset(row_format.name for row_format in ROW_FORMATS if isinstance(row_format, RowFormat))
_BACKEND_WORD = re.compile(r"backend")
_PLANNED_WORD = re.compile(r"backend|capabilit|(?:^|_)plan(?:$|_)|placement|(?:row|kv|index)_format")
PATH_FILES = ("path.py", "placements.py", "delivery.py", "indexer.py", "local_rows.py")
"""The modules that make the path of a layer, in `src/dsa_cp/layer`."""


def tests_of(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield every expression that decides what runs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.Match):
            yield node.subject


def decided_by(test: ast.expr, words: re.Pattern[str], constants: frozenset[str]) -> str | None:
    """Return the name or constant in a test that belongs to these words, None where there is none."""
    for node in ast.walk(test):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
        if name is not None and words.search(name.lower()):
            return name
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in constants:
            return repr(node.value)
    return None


def contract_branches(tree: Tree) -> Iterator[Finding]:
    """Yield branches on a backend in the contracts: in the house's package, and in modules with contracts elsewhere."""
    for source in tree.code:
        if source.is_under("dsa_contracts") or _has_contract(source):
            for test in tests_of(source.tree):
                what = decided_by(test, _BACKEND_WORD, BACKENDS)
                if what is not None:
                    text = f"a contract branches on {what}; what a backend can do is a capability"
                    yield finding(source, test, "REV002", text)


def _has_contract(source: Source) -> bool:
    return any(bound.kind == CONTRACT for bound in bound_functions(source))


def path_branches(tree: Tree) -> Iterator[Finding]:
    """Yield branches of the path on what the plan has decided."""
    for name in PATH_FILES:
        source = tree.at("src", "dsa_cp", "layer", name)
        for test in tests_of(source.tree) if source is not None else ():
            what = decided_by(test, _PLANNED_WORD, BACKENDS | _FORMATS)
            if source is not None and what is not None:
                text = f"{name} branches on {what}; the plan has decided that, and its route has the function"
                yield finding(source, test, "REV003", text)


CONTRACT_BRANCH = Rule(
    "REV002",
    "no contract branches on a backend",
    "a contract with a name in it is another contract for each backend; a capability is data that all can read",
    False,
    contract_branches,
)
PATH_BRANCH = Rule(
    "REV003",
    "the path does not branch on backend, plan or row format",
    "a decision that is taken again beside the plan can be taken differently",
    True,
    path_branches,
)
