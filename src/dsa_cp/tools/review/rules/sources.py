"""The Python files under review, parsed once and never imported."""

import ast
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dsa_contracts.core.errors import ArgumentError

_SKIPPED = frozenset({"build", "dist", "node_modules", "site-packages", "__pycache__"})
_REJECTED = ("tests", "typing", "fail")
"""Programs that a type checker must reject are wrong on purpose."""


@dataclass(frozen=True)
class Source:
    """One file.

    Attributes:
        path: where it is.
        shown: how findings name it.
        place: its path inside the house, in parts; outside of a house, inside the folder that was given.
        text: its text.
        tree: its syntax tree; of a file that does not parse, an empty one.
        error: what is wrong with it where it does not parse.
    """

    path: Path
    shown: str
    place: tuple[str, ...]
    text: str
    tree: ast.Module
    error: SyntaxError | None = None

    @property
    def is_test(self) -> bool:
        """Whether the file is a test or stands among tests."""
        return "tests" in self.place[:-1] or self.path.name.startswith(("test_", "conftest"))

    @property
    def stem(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    def is_under(self, *parts: str) -> bool:
        """Whether the file stands in this folder of the house."""
        return self.place[: len(parts)] == parts

    @cached_property
    def functions(self) -> list[ast.FunctionDef]:
        """All functions of the file, in the order of their lines."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]

    @cached_property
    def imports(self) -> list[tuple[str, ast.stmt | ast.expr]]:
        """What the file imports, with the node that does; every rule asks, and a walk is most of what a rule costs."""
        return list(imported(self.tree))


@dataclass(frozen=True)
class Tree:
    """All files under review.

    Attributes:
        sources: the files, in the order of their names.
        house: root of the house that they stand in; None for other people's modules.
    """

    sources: tuple[Source, ...]
    house: Path | None

    def under(self, *parts: str) -> Iterator[Source]:
        """Yield the files of a folder of the house."""
        return (source for source in self.sources if source.is_under(*parts))

    def at(self, *parts: str) -> Source | None:
        """Return one file of the house, None where there is none."""
        return next((source for source in self.sources if source.place == parts), None)

    @property
    def code(self) -> Iterator[Source]:
        """The files that are no tests."""
        return (source for source in self.sources if not source.is_test)


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` as written, an empty text for anything that is no chain of names."""
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return node.id if isinstance(node, ast.Name) else ""


def imported(tree: ast.AST) -> Iterator[tuple[str, ast.stmt | ast.expr]]:
    """Yield what a file imports, with the node that does: modules, and names with the module that they come from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node
        elif isinstance(node, ast.Call) and dotted(node.func) in ("importlib.import_module", "import_module", "__import__"):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value, node


def read_tree(paths: Sequence[Path]) -> Tree:
    """Return the files under some paths. A part of a house is read with all of the house, for rules about the whole.

    Raises:
        ArgumentError: DSA602, a path does not exist, is no Python file, or cannot be read.
    """
    for path in paths:
        if not path.exists():
            raise ArgumentError(f"{path} does not exist")
        if path.is_file() and path.suffix != ".py":
            raise ArgumentError(f"{path} is no Python file")
    house = house_of(paths[0])
    roots = [house] if house is not None else list(paths)
    sources = {file.resolve(): read_source(file, root) for root in roots for file in _files(root)}
    for path in paths:
        for file in _files(path):
            sources.setdefault(file.resolve(), read_source(file, house or path))
    return Tree(tuple(sorted(sources.values(), key=lambda source: source.place)), house)


def house_of(path: Path) -> Path | None:
    """Return the nearest folder at or above a path that has the two stage folders of the house, None where none has."""
    start = path.resolve()
    for folder in (start, *start.parents):
        if (folder / "dsa_contracts" / "stages").is_dir() and (folder / "src" / "dsa_cp" / "stages").is_dir():
            return folder
    return None


def _files(root: Path) -> list[Path]:
    """Return the Python files of a folder, or the one file that is named."""
    if root.is_file():
        return [root]
    found = (path for path in root.rglob("*.py") if not _is_skipped(path.relative_to(root).parts))
    return sorted(found)


def _is_skipped(parts: tuple[str, ...]) -> bool:
    is_hidden = any(part.startswith(".") or part in _SKIPPED for part in parts)
    return is_hidden or parts[: len(_REJECTED)] == _REJECTED


def read_source(path: Path, root: Path) -> Source:
    """Return a file parsed; raises ArgumentError DSA602 where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'no UTF-8 text'}") from None
    resolved, base = path.resolve(), root.resolve()
    place = resolved.relative_to(base).parts if resolved.is_relative_to(base) and resolved != base else (path.name,)
    here = Path.cwd()
    shown = resolved.relative_to(here) if resolved.is_relative_to(here) else resolved
    try:
        return Source(path, shown.as_posix(), place, text, _parsed(text))
    except SyntaxError as error:
        return Source(path, shown.as_posix(), place, text, ast.Module(body=[], type_ignores=[]), error)


def _parsed(text: str) -> ast.Module:
    """Return a syntax tree; raises SyntaxError also for what older parsers call by other names."""
    with warnings.catch_warnings(action="ignore"):
        try:
            return ast.parse(text)
        except (ValueError, RecursionError) as error:
            raise SyntaxError(str(error)) from error
