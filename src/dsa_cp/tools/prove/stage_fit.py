"""Whether adjacent stages of a layer fit, for every number of rows and every legal placement of the gather.

What is proven: in the calls that a layer makes, as `stage_steps` records them, every dim of every argument has the size that
it has in the batch, in the row format or in the rest of the call, and rows, order, RoPE and packing state, dtype and strides
are what the stage takes.
"""

from collections.abc import Iterator

from dsa_cp.planner.search import legal_paths
from dsa_cp.tools.prove.cut import Cut
from dsa_cp.tools.prove.goals import Goal, Obligation
from dsa_cp.tools.prove.stage_steps import StageCall, early_gather_steps, layer_steps
from dsa_cp.tools.prove.stage_walk import Walk
from dsa_cp.tools.prove.terms import Ask, Term


def _rank_len(cut: Cut, rank: Term) -> Term:
    """Return `nnz_local` of a rank that may be any."""
    lens = [cut.rules.rank_len(cut, each) for each in range(cut.cp_size)]
    found = lens[0]
    for each, length in enumerate(lens):
        found = cut.logic.choose(rank == each, length, found)
    return found


def layer_fits(name: str, steps: tuple[StageCall, ...], kv_format: str, cut: Cut, ask: Ask) -> Iterator[Goal]:
    """The calls of a layer fit on every rank, with padding rows and without.

    Args:
        name: name of the placement.
        steps: the calls of a layer with it.
        kv_format: name of the pool's row format.
        cut: the batch.
        ask: gives the rank, and sizes that no batch decides.
    """
    rank = ask("cp_rank", 0)
    for own_rows in ("nnz_local", "nnz_padded"):
        walk = Walk(cut, ask, kv_format, own_rows, _rank_len(cut, rank))
        for step in steps:
            for facts in filter(None, walk.call(step)):
                about = f"{name}, {step.stage} with {own_rows} rows"
                yield Goal(about, (rank < cut.cp_size,), tuple(facts), (("cp_rank", rank),))


def placements_fit(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """The calls of a layer fit under every placement that the planner finds legal."""
    for path in legal_paths(type(cut.layout)):
        yield from layer_fits(path.name, layer_steps(path.name), path.row_format, cut, ask)


def early_gather_fits(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """The calls of a layer fit where K is gathered before `rope_quantize`: they do not."""
    yield from layer_fits("gather_before_rope", early_gather_steps(), "fp8", cut, ask)


_STATEMENT = "dims, row widths, rows, order, RoPE state, dtype and strides fit from stage to stage, in every placement"

STAGES_FIT = Obligation("stages_fit", _STATEMENT, (placements_fit,))
GATHER_BEFORE_ROPE_FITS = Obligation("stages_fit", _STATEMENT, (early_gather_fits,))
