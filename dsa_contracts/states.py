"""What a typed tensor states besides shape: rows, order, RoPE state, packing, dtype, strides.

The classes here are marks in annotations (`Ten[Local[L], Rotated, BF16, Contiguous, NnzLocal, KvLoraRank]`). mypy reads
them as type arguments; at run time they are compared with the brand that a stage put on its output.
"""

from typing import ClassVar, Generic

import torch

from dsa_contracts.dims import Dim, RowBytes
from dsa_contracts.typevars import F, L, O, P


class Order:
    """Order of the rows of a tensor that holds rows of all ranks."""


class Sequence(Order):
    """Request by request, token by token: the order of the flattened batch."""


class RankMajor(Order, Generic[L]):
    """All rows of rank 0, then of rank 1, ...: the order a collective leaves, padding included."""


class Rows:
    """Which rows a tensor holds."""


class Local(Rows, Generic[L]):
    """This rank's rows, in the local order of layout `L`.

    With the dim `nnz_local` it holds real rows only; with `nnz_padded` it also holds padding rows.
    """


class Global(Rows, Generic[O]):
    """Rows of all ranks, in order `O`."""


class Pool(Rows):
    """Slots of the paged KV pool."""


class PerRequest(Rows):
    """One row a request of the batch, all requests, in batch order."""


class Table(Rows):
    """Rows indexed by position (the cos/sin table)."""


class State:
    """RoPE and packing state of a tensor's values."""


class Plain(State):
    """RoPE does not concern these values."""


class RopeState(State):
    """Base of the two RoPE states."""


class Raw(RopeState):
    """RoPE is still to be applied."""


class Rotated(RopeState):
    """RoPE has been applied, once."""


class Packed(State, Generic[F, P]):
    """Bytes of packed rows of format `F`, whose rope part is in RoPE state `P`."""


class FormatMark:
    """Base of the row format marks; `dsa_contracts.formats` holds the widths and offsets."""


class Bf16Row(FormatMark):
    """bf16 latent, bf16 rope part: 1152 bytes at 512 + 64."""


class Fp8Row(FormatMark):
    """Flat e4m3 latent and rope part under one scale: 576 bytes at 512 + 64."""


class Fp8Row656(FormatMark):
    """e4m3 latent, one float32 scale for each 128 of it, bf16 rope part: 656 bytes at 512 + 64."""


class IndexBf16Row(FormatMark):
    """bf16 indexer key: 256 bytes at 128."""


class IndexFp8Row(FormatMark):
    """e4m3 indexer key and one float32 scale: 132 bytes at 128."""


class DType:
    """Base of the dtype marks."""

    torch_dtype: ClassVar[torch.dtype]


class BF16(DType):
    """torch.bfloat16."""

    torch_dtype = torch.bfloat16


class F32(DType):
    """torch.float32."""

    torch_dtype = torch.float32


class E4M3(DType):
    """torch.float8_e4m3fn."""

    torch_dtype = torch.float8_e4m3fn


class U8(DType):
    """torch.uint8: bytes that no arithmetic may touch."""

    torch_dtype = torch.uint8


class I32(DType):
    """torch.int32."""

    torch_dtype = torch.int32


class I64(DType):
    """torch.int64."""

    torch_dtype = torch.int64


class UnitLast:
    """Last stride 1; the other strides are free."""


class Contiguous(UnitLast):
    """Dense, row after row."""


class RowStride(UnitLast):
    """Last stride 1, and rows lie as many bytes apart as the dim `row_dim` says. Subclasses name the dim."""

    row_dim: ClassVar[type[Dim]]


class PackedRowStride(RowStride):
    """Rows one packed row apart: a column slice of packed rows, not a copy."""

    row_dim = RowBytes
