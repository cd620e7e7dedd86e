"""What a document names is there: modules, files, and names of the code's own."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from dsa_cp.tools.stage_table import ROOT

DOCUMENTS = (
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("architecture", "decisions", "review")),
    *sorted((ROOT / "tests").rglob("README.md")),
    ROOT / "benchmarks" / "README.md",
)
TO_COME = {"dsa_cp.engines"}
"""Packages that a document announces."""

ELSEWHERE = {
    "set_mla_kv_buffer": "sglang",
    "index_topk": "a model's configuration",
    "copy_": "torch",
}
"""Names in decisions that are not the house's own, and whose they are."""


def resolves(name: str) -> bool:
    """Whether a dotted name is a module of the house, or a name in one."""
    try:
        import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return module.count(".") > 0 and hasattr(import_module(module), attribute)
    return True


def in_backticks(document: Path) -> list[str]:
    """What a document sets in backticks, blocks of code left out."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_that_a_document_names_is_there(document: Path) -> None:
    names = [name for name in in_backticks(document) if re.fullmatch(r"(dsa_contracts|dsa_cp)(\.\w+)+", name)]
    assert [name for name in names if name not in TO_COME and not resolves(name)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_leads_to_a_file(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (document.parent / link).exists()] == []


def test_every_name_that_a_decision_gives_stands_in_the_code() -> None:
    code = "\n".join(
        file.read_text(encoding="utf-8") for root in ("dsa_contracts", "src", "pyproject.toml") for file in python_files(root)
    )
    words = set(re.findall(r"\w+", code))
    named = {name for name in in_backticks(ROOT / "docs" / "decisions.md") if re.fullmatch(r"\w*_\w+|[A-Z]\w+[a-z]\w*", name)}
    assert named
    assert sorted(named - words - set(ELSEWHERE)) == []


def test_names_of_others_are_all_used() -> None:
    assert set(ELSEWHERE) <= set(in_backticks(ROOT / "docs" / "decisions.md"))


def python_files(root: str) -> list[Path]:
    """The file, or the Python files under a folder."""
    path = ROOT / root
    return [path] if path.is_file() else sorted(path.rglob("*.py"))
