"""Keys are stored rotated; raw ones are packed, gathered and written."""

from dsa_contracts import Comm, CpBatch, Ten
from dsa_contracts.core.marks import BF16, I64, U8, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import KvLoraRank, NnzGathered, NnzLocal, NumPages, PageSize, QkRopeHeadDim, RowBytes
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Global, Local, Packed, Pool, RankMajor, Raw, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import all_gather_kv, pack_kv, write_kv


def layer(
    k_nope: Ten[Local[Zigzag], Plain, BF16, UnitLast, NnzLocal, KvLoraRank],
    k_rope: Ten[Local[Zigzag], Raw, BF16, UnitLast, NnzLocal, QkRopeHeadDim],
    pool: Ten[Pool, Packed[Bf16Row, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    loc: Ten[Global[RankMajor[Zigzag]], Plain, I64, Contiguous, NnzGathered],
    batch: CpBatch[Zigzag],
    comm: Comm,
) -> None:
    kv = pack_kv(k_nope, k_rope, bf16_format(), batch)
    gathered = all_gather_kv(kv, bf16_format(), batch, comm)
    write_kv(pool, gathered, loc, bf16_format(), batch)  # refused
