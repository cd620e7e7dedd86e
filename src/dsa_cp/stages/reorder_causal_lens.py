"""Reference of `reorder_causal_lens`: one gather by the batch's row index."""

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, brand, stage
from dsa_contracts.dsa.aliases import CausalLens, RowIndex
from dsa_contracts.dsa.dims import Nnz
from dsa_contracts.dsa.states import Global, Local, Sequence
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.numerics.indexed_rows import take_rows


@stage(contracts.reorder_causal_lens)
def reorder_causal_lens(
    causal_lens: CausalLens[Global[Sequence], Nnz],
    rows: RowIndex[Local[L], N],
    batch: CpBatch[L],
) -> CausalLens[Local[L], N]:
    """See `dsa_contracts.stages.reorder_causal_lens`."""
    return brand(take_rows(causal_lens, rows))
