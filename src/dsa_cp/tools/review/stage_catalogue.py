"""The contract catalogue: every stage with its parameters, invariants, codes and source, in the form that is asked for."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from jinja2 import Environment, PackageLoader, StrictUndefined

from dsa_contracts.core.contract import StageContract
from dsa_contracts.core.errors import CODES, ArgumentError
from dsa_cp.tools.review.contract_facts import ROW_FORMATS, ContractFacts, StageFacts, contract_facts, stage_facts
from dsa_cp.tools.review.docstrings import DocFacts, read_docstring
from dsa_cp.tools.review.fact_words import Word, dim_words, variable_words
from dsa_cp.tools.stage_table import stage_contracts


class Format(StrEnum):
    """How the catalogue is written."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


@dataclass(frozen=True)
class StageView:
    """One stage as the catalogue shows it.

    Attributes:
        facts: the facts of its contract.
        doc: what the stub's docstring says.
        file: file of the stub, relative to the folder that holds the package.
        line: line of the stub in it.
    """

    facts: StageFacts
    doc: DocFacts
    file: str
    line: int

    @property
    def codes(self) -> tuple[str, ...]:
        """All codes that the stage lists, in order."""
        return tuple(sorted({code for codes in self.facts.raises.values() for code in codes}))

    def meaning(self, name: str, *, is_return: bool = False) -> str:
        """Return what the docstring says of a parameter, or of a return value."""
        said = self.doc.returns if is_return else self.doc.args
        return said.get(name, said.get("", "") if is_return else "")

    def as_json(self) -> dict[str, object]:
        """Return the view as one object."""
        doc = asdict(self.doc)
        return {**self.facts.model_dump(mode="json"), "doc": doc, "contract": f"{self.file}:{self.line}"}


def stage_view(contract: StageContract) -> StageView:
    """Return the view of one contract."""
    file, _, line = contract.location.rpartition(":")
    return StageView(stage_facts(contract), read_docstring(contract.stub), file, int(line))


def stage_views(names: Sequence[str] = ()) -> list[StageView]:
    """Return the views of the named stages in the order of the catalogue; without names, of all.

    Raises:
        ArgumentError: DSA602, there is no stage of a name.
    """
    contracts = {contract.name: contract for contract in stage_contracts()}
    for name in names:
        if name not in contracts:
            raise ArgumentError(f"--stage {name!r} is not known; known are {', '.join(contracts)}")
    return [stage_view(contract) for name, contract in contracts.items() if not names or name in names]


@dataclass(frozen=True)
class Catalogue:
    """All that a template shows: stages, and the words that contracts are written in."""

    views: list[StageView]
    facts: ContractFacts
    variables: list[Word]
    dims: list[Word]
    row_bytes: dict[str, int]


def catalogue(names: Sequence[str] = ()) -> Catalogue:
    """Return the catalogue of the named stages, or of all; raises ArgumentError DSA602 as `stage_views` does."""
    widths = {row_format.name: row_format.row_bytes for row_format in ROW_FORMATS}
    return Catalogue(stage_views(names), contract_facts(), variable_words(), dim_words(), widths)


def environment(*, is_html: bool) -> Environment:
    """Return the template environment; an undefined name is an error, and HTML is escaped."""
    made = Environment(
        loader=PackageLoader("dsa_cp.tools.review"),
        undefined=StrictUndefined,
        autoescape=is_html,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals["codes"] = {code: text for code, text in CODES.items() if code.startswith("DSA")}
    made.filters["cell"] = lambda text: text.replace("|", "\\|")
    return made


def markdown(names: Sequence[str] = ()) -> str:
    """Return the catalogue as Markdown; links are relative to `docs`."""
    return environment(is_html=False).get_template("contracts.md.j2").render(catalogue=catalogue(names))


def json_lines(names: Sequence[str] = ()) -> str:
    """Return the catalogue as JSON, one stage a line."""
    return "".join(json.dumps(view.as_json()) + "\n" for view in stage_views(names))
