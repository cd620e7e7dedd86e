"""Reference of `reorder_causal_lens`: one gather by the batch's row index."""

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, Ten, brand, stage
from dsa_contracts.core.marks import I32, I64, Contiguous, Plain
from dsa_contracts.dsa.dims import Nnz
from dsa_contracts.dsa.states import Global, Local, Sequence
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.numerics.rows import take_rows


@stage(contracts.reorder_causal_lens)
def reorder_causal_lens(
    causal_lens: Ten[Global[Sequence], Plain, I32, Contiguous, Nnz],
    rows: Ten[Local[L], Plain, I64, Contiguous, N],
    batch: CpBatch[L],
) -> Ten[Local[L], Plain, I32, Contiguous, N]:
    """See `dsa_contracts.stages.reorder_causal_lens`."""
    return brand(take_rows(causal_lens, rows))
