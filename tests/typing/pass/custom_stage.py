"""A stage of somebody else: its own contract, an implementation under `@stage`, and a call between two of ours."""

from dsa_contracts import CpBatch, Ten, brand, contract, stage
from dsa_contracts.core.marks import E4M3, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.aliases import DenseKvRows
from dsa_contracts.dsa.dims import KvLoraRank, NnzGathered
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, Global, PackedRowStride, RankMajor, Rotated
from dsa_contracts.dsa.typevars import L, M, R
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import restore_order, split_kv


@contract(returns=("dense",))
def make_dense(
    codes: Ten[R, Plain, E4M3, UnitLast, M, KvLoraRank], batch: CpBatch[L]
) -> Ten[R, Plain, E4M3, Contiguous, M, KvLoraRank]:
    """The same codes, row after row."""
    raise NotImplementedError


@stage(make_dense)
def copy_dense(
    codes: Ten[R, Plain, E4M3, UnitLast, M, KvLoraRank], batch: CpBatch[L]
) -> Ten[R, Plain, E4M3, Contiguous, M, KvLoraRank]:
    return brand(codes.contiguous())


def layer(
    gathered: DenseKvRows[Global[RankMajor[Zigzag]], Fp8Row, Rotated, NnzGathered],
    batch: CpBatch[Zigzag],
) -> None:
    restored = restore_order(gathered, batch)
    codes, _ = split_kv(restored, fp8_format(), PackedRowStride, batch)
    copy_dense(codes, batch)
    dense, _ = split_kv(restored, fp8_format(), Contiguous, batch)
    copy_dense(dense, batch)
