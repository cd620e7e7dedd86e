"""Whether adjacent stages of a layer fit, for every number of rows and every placement.

What is proven: in the calls of `stage_steps`, every dim of every argument has the size that it has in the batch, in the row
format or in the rest of the call, and rows, order, RoPE and packing state, dtype and strides are what the stage takes.
"""

from collections.abc import Iterator
from functools import partial

from dsa_cp.prove.cut import Cut
from dsa_cp.prove.goals import Goal, Obligation
from dsa_cp.prove.stage_steps import (
    ALL_STEPS,
    BATCH_STEPS,
    GATHER_BEFORE_ROPE,
    INDEXER_STEPS,
    KV_FORMAT_OF,
    PLACEMENT_STEPS,
    attend_step,
)
from dsa_cp.prove.stage_walk import Walk
from dsa_cp.prove.terms import Ask, Term


def _rank_len(cut: Cut, rank: Term) -> Term:
    """Return `nnz_local` of a rank that may be any."""
    lens = [cut.rules.rank_len(cut, each) for each in range(cut.cp_size)]
    found = lens[0]
    for each, length in enumerate(lens):
        found = cut.logic.choose(rank == each, length, found)
    return found


def _fits(placement: str, cut: Cut, ask: Ask) -> Iterator[Goal]:
    """The calls of a layer fit on every rank, with padding rows and without."""
    between = ALL_STEPS[placement]
    steps = (*BATCH_STEPS, *INDEXER_STEPS, *between, attend_step(between))
    rank = ask("cp_rank", 0)
    for own_rows in ("nnz_local", "nnz_padded"):
        walk = Walk(cut, ask, KV_FORMAT_OF[placement], own_rows, _rank_len(cut, rank))
        for step in steps:
            about = f"{placement}, {step.stage} with {own_rows} rows"
            for facts in filter(None, walk.call(step)):
                yield Goal(about, (rank < cut.cp_size,), tuple(facts), (("cp_rank", rank),))


def _obligation(*placements: str) -> Obligation:
    """Return the obligation of placements."""
    statement = "dims, row widths, rows, order, RoPE state, dtype and strides fit from stage to stage, in every placement"
    return Obligation("stages_fit", statement, tuple(partial(_fits, placement) for placement in placements))


STAGES_FIT = _obligation(*PLACEMENT_STEPS)
GATHER_BEFORE_ROPE_FITS = _obligation(GATHER_BEFORE_ROPE)
