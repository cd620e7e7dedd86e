"""The core serves any path: it imports nothing of this one, and holds none of its words. Its tests do neither."""

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = sorted((ROOT / "dsa_contracts" / "core").rglob("*.py"))
OF_THE_CORE = ("toy", "messages")
"""The builders that tests of the core may use."""
ALLOWED = tuple(f"tests.support.{name}" for name in OF_THE_CORE)
TESTS = sorted(
    [*(ROOT / "tests" / "core").rglob("*.py"), *(ROOT / "tests" / "support" / f"{name}.py" for name in OF_THE_CORE)]
)
LIBRARIES = frozenset({"torch", "jaxtyping", "beartype"}) | sys.stdlib_module_names
FOR_TESTS = frozenset({"pytest", "hypothesis"})

PATH_WORDS = frozenset(
    """
    attention block_table causal cos cp cpbatch decode deepseek dsa extend flashinfer flashmla fp8 heads indexer
    interleave kv latent lse mla mqa nnz nope nsa page paged pages pe pool pools positions prefill prefix query
    queries request requests rope rotated rotary sglang slot slots softmax topk trtllm vllm zigzag
    """.split()  # noqa: SIM905
)
"""Words of the path, as they stand in names, comments and sentences. `batch` and
`layout` are none: every path has batches, and a tensor of torch has a layout."""
OUTSIDE = re.compile(r"DSA\d{3}|DSA\dnn|\"DSA\d?\"|f\"DSA(?=\{)|DSA_CONTRACTS|dsa_contracts(?:\.[a-z_]+)*|__slots__")
"""What may say so: codes, which are stable and published, the variable of the mode, the package's name; Python's slots."""


def imported(text: str) -> Iterator[str]:
    """Modules that a file imports, anywhere in it: at the top, in a function, for the type checker alone, by name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield f"{'.' * node.level}{node.module or ''}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__"):
            yield ast.literal_eval(node.args[0]) if isinstance(node.args[0], ast.Constant) else ast.unparse(node.args[0])


def foreign(text: str, *own: str, libraries: frozenset[str] = LIBRARIES) -> list[str]:
    """Imports that are neither of these libraries nor of the house's own modules that are named."""
    return [
        module
        for module in imported(text)
        if module.partition(".")[0] not in libraries and not any(f"{module}.".startswith(f"{name}.") for name in own)
    ]


def words(text: str) -> Iterator[tuple[int, str]]:
    """Words of a file with their lines: names cut at underscores and capitals, strings, docstrings and comments."""
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if tokenize.tok_name[token.type] in ("NAME", "STRING", "FSTRING_MIDDLE", "COMMENT"):
            for at, line in enumerate(OUTSIDE.sub(" ", token.string).splitlines()):
                for chain in re.findall(r"[A-Za-z][A-Za-z0-9_]*", line):
                    yield token.start[0] + at, chain.lower()
                    for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", chain):
                        yield token.start[0] + at, part.lower()


def path_words(text: str) -> list[str]:
    return sorted({f"{line}: {word}" for line, word in words(text) if word in PATH_WORDS})


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.relative_to(ROOT / "dsa_contracts").as_posix())
def test_the_core_imports_three_libraries_and_itself(path: Path) -> None:
    assert foreign(path.read_text(encoding="utf-8"), "dsa_contracts.core") == []


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.relative_to(ROOT / "dsa_contracts").as_posix())
def test_the_core_holds_no_word_of_the_path(path: Path) -> None:
    assert path_words(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.relative_to(ROOT / "tests").as_posix())
def test_tests_of_the_core_import_the_core_and_toys(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert foreign(text, "dsa_contracts.core", "tests.core", *ALLOWED, libraries=LIBRARIES | FOR_TESTS) == []


@pytest.mark.parametrize(
    ("statement", "module"),
    [
        ("import numpy", "numpy"),
        ("def f():\n    from dsa_cp.layouts import Zigzag", "dsa_cp.layouts"),
        ("if TYPE_CHECKING:\n    import dsa_contracts.dsa.dims", "dsa_contracts.dsa.dims"),
        ("from dsa_contracts import CpBatch", "dsa_contracts"),
        ("from dsa_contracts.core_tools import x", "dsa_contracts.core_tools"),
        ("from .. import dsa", ".."),
        ("importlib.import_module('dsa_contracts.stages')", "dsa_contracts.stages"),
        ("__import__(name)", "name"),
    ],
)
def test_an_import_of_something_else_is_seen_wherever_it_stands(statement: str, module: str) -> None:
    assert foreign(
        f"import os\nimport torch.nn\nfrom dsa_contracts.core.marks import Dim\n{statement}\n", "dsa_contracts.core"
    ) == [module]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kv_rows = 1\n", ["1: kv"]),
        ("class KvLoraRank: ...\n", ["1: kv"]),
        ("x = 1  # one page a request\n", ["1: page", "1: request"]),
        ('def f():\n    """Rows.\n\n    In the order of zigzag.\n    """\n', ["4: zigzag"]),
        ("x = f'rank of {cp_size}'\n", ["1: cp"]),
        ('raise E("no pool")\n', ["1: pool"]),
        ('CODES = {"DSA101": "a DSA word"}\n', ["1: dsa"]),
        ('CODES = {"DSA101": "set DSA_CONTRACTS"}\nimport dsa_contracts.core\n', []),
        ("keyword, package, slotted, ropes = scope, token, headline, equal\n", []),
    ],
)
def test_a_word_of_the_path_is_seen_in_names_sentences_and_comments(text: str, found: list[str]) -> None:
    assert path_words(text) == found
