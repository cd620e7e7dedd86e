"""The README shows what the code says."""

import pytest

from dsa_cp.cli import main
from dsa_cp.tools.stage_table import ROOT, codes_of, stage_contracts, stage_table

README = (ROOT / "README.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    """Return the text between the markers of a generated section."""
    return README.partition(f"<!-- {name}: begin -->\n")[2].partition(f"<!-- {name}: end -->")[0]


def test_the_stage_table_is_the_one_that_the_contracts_make() -> None:
    assert section("stage table") == stage_table()


def test_every_file_that_the_readme_links_to_exists() -> None:
    links = [part.partition(")")[0] for part in README.split("](")[1:]]
    assert links
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []


def test_the_contract_that_the_readme_shows_is_the_one_in_the_code() -> None:
    shown = [part.partition("```")[0] for part in README.split("```python\n")[1:3]]
    for text, file in zip(shown, ("stages/all_gather_kv.py", "dsa/aliases.py"), strict=True):
        assert text in (ROOT / "dsa_contracts" / file).read_text(encoding="utf-8")


def test_every_stage_lists_codes() -> None:
    assert [contract.name for contract in stage_contracts() if not codes_of(contract)] == []


def test_the_named_breakages_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--break", "list"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert line.split()[0] in README


def test_no_path_of_a_machine_and_no_registry_stands_in_the_documents() -> None:
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        assert "/work/" not in text, path
        assert "/tmp/" not in text, path
