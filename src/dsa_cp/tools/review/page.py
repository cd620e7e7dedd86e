"""The page: the catalogue with drawings, one file of HTML that needs nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dsa_contracts.core.contract import StageContract
from dsa_contracts.dsa.codes import PlanError
from dsa_cp.layouts import Interleave
from dsa_cp.planner.replay import replay
from dsa_cp.planner.search import Path, legal_paths
from dsa_cp.tools.review.contract_facts import ROW_FORMATS
from dsa_cp.tools.review.drawings.flow import flow_drawing, gather_at
from dsa_cp.tools.review.drawings.formats import format_drawing
from dsa_cp.tools.review.drawings.journey import journey_drawing
from dsa_cp.tools.review.drawings.scene import LAYOUTS, Scene
from dsa_cp.tools.review.drawings.stage_drawings import stage_drawing
from dsa_cp.tools.review.drawings.svg import Sheet
from dsa_cp.tools.review.stage_catalogue import catalogue, environment
from dsa_cp.tools.stage_table import stage_contracts


@dataclass(frozen=True)
class Figure:
    """A drawing with the line over it, and a remark."""

    svg: Markup
    caption: str
    note: str = ""


def page(names: Sequence[str] = ()) -> str:
    """Return the page of the named stages, or of all; raises ArgumentError DSA602 where there is no such stage."""
    found = catalogue(names)
    sheet, scenes = Sheet(), [Scene(layout) for layout in LAYOUTS]
    contracts = {contract.name: contract for contract in stage_contracts()}
    drawn = {view.facts.name: _stage_figures(sheet, contracts[view.facts.name], scenes) for view in found.views}
    made = environment(is_html=True)
    css = made.get_template("page.css").render()
    journeys = [Figure(Markup(journey_drawing(sheet, scene)), scene.layout.name) for scene in scenes]
    return made.get_template("page.html.j2").render(
        catalogue=found,
        css=Markup(css),
        strips=Markup(sheet.render()),
        journeys=journeys,
        flows=_flow_figures(sheet),
        refused=refusal_of_early_gather(),
        drawn=drawn,
        formats=[Figure(Markup(format_drawing(sheet, each)), each.name, f"{each.row_bytes} bytes") for each in ROW_FORMATS],
    )


def _stage_figures(sheet: Sheet, contract: StageContract, scenes: list[Scene]) -> list[Figure]:
    """Return a stage's drawing under each layout."""
    return [Figure(Markup(stage_drawing(sheet, contract, scene)), scene.layout.name) for scene in scenes]


def _flow_figures(sheet: Sheet) -> list[Figure]:
    """Return a drawing for each legal placement."""
    paths = legal_paths(Interleave)
    before = max(map(gather_at, paths))
    return [Figure(Markup(flow_drawing(sheet, path, before)), path.name, _note(path)) for path in paths]


def _note(path: Path) -> str:
    return f"{path.row_format}, {path.keys[gather_at(path)].bytes_per_token} bytes a token"


def refusal_of_early_gather() -> str:
    """Return what the planner says of K that is gathered before the fused RoPE, as sglang did before #29161."""
    stages = ("pack_kv", "all_gather_kv", "restore_order", "split_kv", "rope_quantize", "write_kv")
    try:
        replay(stages, Interleave)
    except PlanError as error:
        return str(error)
    return "the contracts allow it"
