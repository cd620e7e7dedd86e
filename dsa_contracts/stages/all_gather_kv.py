"""Contract of `all_gather_kv`."""

from dsa_contracts.core.comm import Comm
from dsa_contracts.core.contract import contract
from dsa_contracts.dsa.aliases import DenseKvRows, KvRows
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.dims import NnzGathered
from dsa_contracts.dsa.invariants import (
    comm_is_the_batch_group,
    gathered_in_rank_order,
    own_rows_stand_in_their_place,
    padding_rows_are_zero,
    row_width_matches_format,
    scales_in_rows_are_positive,
)
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Global, Local, RankMajor
from dsa_contracts.dsa.typevars import ND, RD, F, L, N, P


@contract(
    returns=("gathered",),
    requires=(row_width_matches_format("kv"), comm_is_the_batch_group(), scales_in_rows_are_positive("kv")),
    ensures=(gathered_in_rank_order(), own_rows_stand_in_their_place(), padding_rows_are_zero("gathered")),
    advice=(
        ("DSA103", "send bytes: kv.view(torch.uint8), not .to(torch.uint8), which changes the values"),
        ("DSA106", "kv must be this rank's rows; rows that were gathered once hold all ranks' rows already"),
        ("DSA113", "take cp_size and cp_rank from the CP group once, and carry them"),
    ),
    flow=(("kv", "gathered"),),
)
def all_gather_kv(
    kv: KvRows[Local[L], F, P, N],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
    comm: Comm,
) -> DenseKvRows[Global[RankMajor[L]], F, P, NnzGathered]:
    """Packed rows of every rank, rank after rank, each padded to `nnz_padded` rows.

    Args:
        kv: this rank's packed rows, as bytes; with or without padding rows.
        row_format: the format of the rows.
        batch: the batch.
        comm: its context-parallel group.

    Returns:
        `cp_size * nnz_padded` rows; padding rows are 0.

    Row order: rank-major, `batch.gathered_rows` names each row. Aliasing: new memory. Sync: collective; ranks without a
    token take part.

    Raises:
        StageInputError: DSA101 to DSA110, DSA112, DSA113, DSA125.
        StageOutputError: DSA120, DSA122.
        RankError: DSA501, DSA502, DSA503.

    Source: sglang 0.5.15 `_all_gather_dsa_trtllm_fp8_kv`, 0.5.23 the strategies' method of that name; those restore the
        sequence order in the same function, here the order is in the type.
    """
