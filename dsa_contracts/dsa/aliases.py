"""The tensors of the attention path by name: what stands in stubs and implementations instead of a whole `Ten[...]`.

Each name states rows, state, dtype, strides and dims at once, and takes as parameters what differs between its uses, in the
order in which the type variables first appear: `SlotMapping[RankMajor[L], NnzGathered]`. A stage that needs a tensor which
none of them names writes it out with `Ten`.
"""

from typing import TypeAlias

from dsa_contracts.core.marks import BF16, F32, I32, I64, U8, Contiguous, Plain, UnitLast
from dsa_contracts.core.tensors import Ten
from dsa_contracts.dsa.dims import (
    CosSinWidth,
    IndexHeadDim,
    IndexRowBytes,
    IndexTopk,
    KvLoraRank,
    MaxPages,
    MaxPosition,
    NumIndexHeads,
    NumLocalHeads,
    NumPages,
    NumRequests,
    PageSize,
    QkHeadDim,
    QkRopeHeadDim,
    RowBytes,
)
from dsa_contracts.dsa.states import (
    Global,
    KeyCounts,
    KeyIds,
    Local,
    Packed,
    PageIds,
    PerRequest,
    Pool,
    Positions,
    Raw,
    RequestIds,
    Rotated,
    RowIds,
    Table,
    TokenSlots,
)
from dsa_contracts.dsa.typevars import AD, FI, ND, QD, RD, C, Ds, F, G, K, L, M, N, O, P, R, S

KvCache: TypeAlias = Ten[Pool, Packed[F, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes]
"""`[F]`: one layer's pool of packed rows of format `F`, rotated."""

IndexCache: TypeAlias = Ten[Pool, Packed[FI, Rotated], U8, Contiguous, NumPages, PageSize, IndexRowBytes]
"""`[FI]`: one layer's pool of the indexer's rows, where a KV cache stands beside it in one call."""

KvRows: TypeAlias = Ten[R, Packed[F, P], U8, UnitLast, K, RowBytes]
"""`[R, F, P, K]`: packed rows as a stage takes them, any stride apart."""

DenseKvRows: TypeAlias = Ten[R, Packed[F, P], U8, Contiguous, K, RowBytes]
"""`[R, F, P, K]`: packed rows as a stage makes them, dense."""

IndexRows: TypeAlias = Ten[R, Packed[FI, P], U8, UnitLast, K, IndexRowBytes]
"""`[R, FI, P, K]`: packed rows of the indexer, where KV rows stand beside them in one call."""

PackedRows: TypeAlias = Ten[R, S, U8, Contiguous, K, RowBytes]
"""`[R, S, K]`: packed rows of any format in any state, dense, for stages that move them and look at none."""

LatentColumns: TypeAlias = Ten[R, Plain, ND, C, K, KvLoraRank]
"""`[R, ND, C, K]`: the latent part of packed rows, in the dtype of their format."""

RopeColumns: TypeAlias = Ten[R, P, RD, C, K, QkRopeHeadDim]
"""`[R, P, RD, C, K]`: the rope part of packed rows, in the dtype of their format."""

KNope: TypeAlias = Ten[R, Plain, BF16, UnitLast, M, KvLoraRank]
"""`[R, M]`: the KV latent before packing."""

KRope: TypeAlias = Ten[R, P, BF16, UnitLast, M, QkRopeHeadDim]
"""`[R, P, M]`: the rope part of the key before packing, one head."""

QNope: TypeAlias = Ten[Local[L], Plain, BF16, UnitLast, N, NumLocalHeads, KvLoraRank]
"""`[L, N]`: absorbed latent queries."""

QRope: TypeAlias = Ten[Local[L], P, BF16, UnitLast, N, NumLocalHeads, QkRopeHeadDim]
"""`[L, P, N]`: the rope part of the queries."""

Query: TypeAlias = Ten[Local[L], Rotated, QD, Contiguous, N, NumLocalHeads, QkHeadDim]
"""`[L, QD, N]`: merged queries, latent then rope, rotated."""

AttentionOut: TypeAlias = Ten[Local[L], Plain, AD, Contiguous, N, NumLocalHeads, KvLoraRank]
"""`[L, AD, N]`: attention output in the latent space."""

AttentionLse: TypeAlias = Ten[Local[L], Plain, F32, Contiguous, N, NumLocalHeads]
"""`[L, N]`: natural logarithm of the softmax denominator."""

IndexQuery: TypeAlias = Ten[Local[L], P, BF16, UnitLast, N, NumIndexHeads, IndexHeadDim]
"""`[L, P, N]`: queries of the lightning indexer."""

IndexKey: TypeAlias = Ten[R, P, BF16, UnitLast, M, IndexHeadDim]
"""`[R, P, M]`: the indexer's key before packing, one head."""

IndexWeights: TypeAlias = Ten[Local[L], Plain, F32, UnitLast, N, NumIndexHeads]
"""`[L, N]`: weight of each indexer head, scales included."""

RawRows: TypeAlias = Ten[R, Raw, BF16, UnitLast, M, *Ds]
"""`[R, M, *Ds]`: rows that RoPE is still to be applied to, whatever their trailing dims."""

RotatedRows: TypeAlias = Ten[R, Rotated, BF16, Contiguous, M, *Ds]
"""`[R, M, *Ds]`: such rows after RoPE."""

CosSinCache: TypeAlias = Ten[Table, Plain, F32, Contiguous, MaxPosition, CosSinWidth]
"""The cos/sin table: row p holds the cosines, then the sines, of position p."""

TokenPositions: TypeAlias = Ten[R, Positions, I64, Contiguous, M]
"""`[R, M]`: position of each row inside its request."""

CausalLens: TypeAlias = Ten[R, KeyCounts, I32, Contiguous, M]
"""`[R, M]`: keys that each row may see."""

RequestOfRow: TypeAlias = Ten[R, RequestIds, I32, Contiguous, M]
"""`[R, M]`: request of each row."""

RowIndex: TypeAlias = Ten[R, RowIds, I64, Contiguous, M]
"""`[R, M]`: row of the batch that each of these rows is; -1 for padding."""

SlotMapping: TypeAlias = Ten[Global[O], TokenSlots, I64, Contiguous, G]
"""`[O, G]`: slot of the KV cache of each row, in the order of the rows; negative: not written."""

PageTable: TypeAlias = Ten[PerRequest, PageIds, I32, Contiguous, NumRequests, MaxPages]
"""Pages of each request, in token order."""

TopkIndices: TypeAlias = Ten[Local[L], KeyIds, I32, Contiguous, N, IndexTopk]
"""`[L, N]`: keys that each row attends to, as positions inside its request; -1: none."""
