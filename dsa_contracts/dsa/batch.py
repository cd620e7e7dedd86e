"""`CpBatch`: everything that depends on the batch and not on the layer, as one rank sees it.

Index tensors are computed once per batch, from the segments of the layout (`dsa_cp.layouts.build_batch`); a layer only
indexes. Row counts are bound here for all stages of the batch.
"""

from copy import copy
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Generic, get_args
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from dsa_contracts.core.bound_dims import BoundDims, CheckLog
from dsa_contracts.core.brands import Kind, make_brand
from dsa_contracts.core.marks import I32, I64, Contiguous, dim_text, mark_text
from dsa_contracts.core.matching import substitute
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.tensors import Ten, TensorSpec, describe_tensor, spec_of, stride_fault
from dsa_contracts.core.views import set_brand
from dsa_contracts.dsa.batch_facts import check_lens, check_ranks
from dsa_contracts.dsa.batch_itself import check_batch
from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.dims import MaxPages, Nnz, NnzGathered, NnzLocal, NnzPadded, NumRequests
from dsa_contracts.dsa.states import (
    Global,
    KeyCounts,
    Local,
    PageIds,
    PerRequest,
    Positions,
    RankMajor,
    RequestIds,
    RowIds,
    RowPlaces,
    Sequence,
    TokenSlots,
)
from dsa_contracts.dsa.typevars import L


@dataclass(frozen=True, eq=False)
class CpBatch(Scope, Generic[L]):
    """One prefill batch on one rank of a context-parallel group.

    "Row" is the index of a token in sequence order: request by request, `0 .. nnz-1`, engine padding not counted.

    Attributes:
        layout: which rank holds which tokens.
        cp_size: ranks of the group.
        cp_rank: this rank.
        extend_lens: new tokens of each request.
        prefix_lens: tokens of each request that are already in the KV pool.
        padded_lens: tokens of each request as the engine holds them, padding included; layouts cut these.
        rank_lens: `nnz_local` of every rank.
        nnz_padded: rows of every rank in the collective.
        positions: position of each row inside its request, prefix included.
        causal_lens: keys that each row may see: its position + 1.
        request_of_row: request of each row.
        local_rows: this rank's rows, in local order.
        padded_rows: this rank's rows as they stand in the collective; -1 is a padding row.
        padded_index: where each of `local_rows` stands in `padded_rows`.
        local_request_of_row: request of each of this rank's rows.
        gathered_rows: row of each gathered row, -1 for padding.
        restore_index: where each row stands in the gathered rows.
        out_cache_loc: KV pool slot of each row; None where the caller gave none.
        rank_major_loc: slot of each gathered row, -1 for padding and for all copies of a replicated row but one.
        page_table: pages of each request, in token order; None where the caller gave none.
        page_size: slots of a page.
        layer: the layer that the stages now work for, None outside of a layer.
        plan: name of the plan that the path follows, empty where there is none.
    """

    noun = "batch"

    layout: L
    cp_size: int
    cp_rank: int
    extend_lens: tuple[int, ...]
    prefix_lens: tuple[int, ...]
    padded_lens: tuple[int, ...]
    rank_lens: tuple[int, ...]
    nnz_padded: int
    positions: Ten[Global[Sequence], Positions, I64, Contiguous, Nnz]
    causal_lens: Ten[Global[Sequence], KeyCounts, I32, Contiguous, Nnz]
    request_of_row: Ten[Global[Sequence], RequestIds, I32, Contiguous, Nnz]
    local_rows: Ten[Local[L], RowIds, I64, Contiguous, NnzLocal]
    padded_rows: Ten[Local[L], RowIds, I64, Contiguous, NnzPadded]
    padded_index: Ten[Local[L], RowPlaces, I64, Contiguous, NnzLocal]
    local_request_of_row: Ten[Local[L], RequestIds, I32, Contiguous, NnzLocal]
    gathered_rows: Ten[Global[RankMajor[L]], RowIds, I64, Contiguous, NnzGathered]
    restore_index: Ten[Global[Sequence], RowPlaces, I64, Contiguous, Nnz]
    out_cache_loc: Ten[Global[Sequence], TokenSlots, I64, Contiguous, Nnz] | None = None
    rank_major_loc: Ten[Global[RankMajor[L]], TokenSlots, I64, Contiguous, NnzGathered] | None = None
    page_table: Ten[PerRequest, PageIds, I32, Contiguous, NumRequests, MaxPages] | None = None
    page_size: int = 64
    layer: int | None = None
    plan: str = ""
    token: object = field(default_factory=object, repr=False)
    dims: BoundDims = field(default_factory=BoundDims, repr=False)
    log: CheckLog = field(default_factory=CheckLog, repr=False)

    def __post_init__(self) -> None:
        """Check that the facts fit together, bind the row counts and brand the index tensors.

        Raises:
            BatchError: DSA301 (lengths), DSA302 (cp_size, cp_rank), DSA303 (an index tensor has another size).
        """
        check_ranks(self.cp_size, self.cp_rank)
        check_lens(self.extend_lens, self.prefix_lens, self.padded_lens)
        if len(self.rank_lens) != self.cp_size:
            raise BatchError(f"rank_lens has {len(self.rank_lens)} entries for cp_size {self.cp_size}")
        if sum(self.rank_lens) < self.nnz or min(self.rank_lens) < 0:
            lens = _short(self.rank_lens)
            raise BatchError(f"rank_lens {lens} do not hold the {self.nnz} tokens of the batch", code="DSA303")
        if max(self.rank_lens) > self.nnz_padded:
            raise BatchError(
                f"nnz_padded {self.nnz_padded} is below {max(self.rank_lens)}, the rows of the fullest rank",
                code="DSA303",
                facts=[("try", "pad to the largest nnz_local, not to ceil(nnz / cp_size)")],
            )
        for name, value in self.row_counts.items():
            self.dims.bind(name, value, f"batch ({self.layout.name}, cp_rank {self.cp_rank} of {self.cp_size})")
        for name, spec in _INDEX_SPECS.items():
            tensor = getattr(self, name)
            if tensor is not None or name not in _OPTIONAL:
                self._adopt(name, spec, tensor)

    def _adopt(self, name: str, spec: TensorSpec, tensor: Tensor) -> None:
        """Check one index tensor against its annotation, and keep and brand a view of it: its giver may reuse it."""
        sizes = tuple(self.row_counts.get(dim_text(dim)) for dim in spec.dims)
        fits = isinstance(tensor, Tensor) and tensor.dtype == getattr(spec.dtype, "torch_dtype", None)
        fits = fits and tensor.dim() == len(sizes) and stride_fault(tensor, spec.strides, None) is None
        if not fits or any(want not in (None, got) for want, got in zip(sizes, tensor.shape, strict=True)):
            raise BatchError(
                f"{name} does not fit this batch",
                code="DSA303",
                facts=[
                    ("expected", f"{spec.describe()}; {self.dims.describe()}"),
                    ("got", describe_tensor(tensor)),
                    ("where", self.where),
                ],
            )
        if tensor.device != self.device:
            raise BatchError(
                f"{name} is on {tensor.device}, positions are on {self.device}",
                code="DSA303",
                facts=[("got", describe_tensor(tensor)), ("where", self.where)],
            )
        rows = substitute(spec.rows, self.bound_marks)
        kind = Kind(rows, spec.state, self.variant_of(rows), f"batch.{name}", is_declared=False)
        own = tensor.view_as(tensor)
        set_brand(own, make_brand(kind, self.token, None))
        object.__setattr__(self, name, own)

    @cached_property
    def row_counts(self) -> dict[str, int]:
        """The row counts that every stage of this batch shares, by the name of their dim."""
        return {
            "nnz": self.nnz,
            "nnz_local": self.nnz_local,
            "nnz_padded": self.nnz_padded,
            "nnz_gathered": self.nnz_gathered,
            "num_requests": self.num_requests,
        }

    @cached_property
    def nnz(self) -> int:
        """Real tokens of the batch over all ranks."""
        return sum(self.extend_lens)

    @property
    def nnz_local(self) -> int:
        """Real tokens of this rank."""
        return self.rank_lens[self.cp_rank]

    @property
    def nnz_gathered(self) -> int:
        """Rows that come out of the collective, padding included."""
        return self.cp_size * self.nnz_padded

    @property
    def num_requests(self) -> int:
        """Requests of the batch."""
        return len(self.extend_lens)

    @cached_property
    def seq_lens(self) -> tuple[int, ...]:
        """Prefix plus extend of each request, exactly."""
        return tuple(prefix + extend for prefix, extend in zip(self.prefix_lens, self.extend_lens, strict=True))

    @cached_property
    def max_seq_len(self) -> int:
        """Keys of the longest request; every position of the batch, on any rank, is below it."""
        return max(self.seq_lens, default=0)

    @property
    def type_marks(self) -> tuple[object, ...]:
        """The class of the layout, which `CpBatch[L]` calls `L`."""
        return (type(self.layout),)

    def variant_of(self, rows: object) -> str:
        """Return the layout's name, parameters included, for rows that depend on the layout."""
        text = mark_text(rows)
        return self.layout.name if text.startswith("Local[") or "RankMajor[" in text else ""

    def meaning_of(self, size: int) -> str:
        """Return which row count of the batch a number of rows is, and of which rows."""
        meant = [f"{size} is {name}, {text}" for name, text in _ROW_MEANING.items() if self.row_counts[name] == size]
        return meant[0] if meant else ""

    def check_itself(self, stage: str, location: str) -> None:
        """Compare the index tensors with the lengths; see `batch_itself.check_batch`."""
        check_batch(self, stage, location)

    @property
    def device(self) -> torch.device:
        """Where the index tensors, and so the tensors of every stage, are."""
        return self.positions.device

    @property
    def where(self) -> str:
        """Rank, layer and layout in one line, for messages."""
        layer = "" if self.layer is None else f", layer {self.layer}"
        return f"cp_rank={self.cp_rank} of {self.cp_size}{layer}, {self.layout.name}"

    @cached_property
    def signature(self) -> "BatchSignature":
        """Host facts that contracts read, as one object for all batches that agree in them; its hash is its identity."""
        table = None if self.page_table is None else tuple(self.page_table.shape)
        facts = (self.layout, self.cp_size, self.cp_rank, self.nnz, self.nnz_local, self.nnz_padded)
        more = (self.num_requests, self.max_seq_len, self.page_size, table, str(self.device), self.plan)
        return _SIGNATURES.setdefault((*facts, *more), BatchSignature())

    @cached_property
    def fingerprint(self) -> str:
        """The batch and plan as every rank of the group must see them; compared before each collective."""
        return (
            f"{self.layout.name} cp_size={self.cp_size} nnz_padded={self.nnz_padded} extend={_short(self.extend_lens)} "
            f"prefix={_short(self.prefix_lens)} plan={self.plan or '-'}"
        )

    def at_layer(self, layer: int) -> "CpBatch[L]":
        """Return this batch as the stages of one layer see it; index tensors, dims and log are shared."""
        view = copy(self)
        object.__setattr__(view, "layer", layer)
        return view

    def required(self, name: str, user: str) -> Tensor:
        """Return optional metadata; raises BatchError DSA304 with the name of the user where it is None."""
        value = getattr(self, name)
        if value is None:
            raise BatchError(
                f"{user} needs {name}, which this batch does not have",
                code="DSA304",
                facts=[("where", self.where), ("try", f"give {name} to build_batch")],
            )
        return value  # type: ignore[no-any-return]


_ROW_MEANING = {
    "nnz": "the rows of all ranks",
    "nnz_local": "this rank's rows without padding",
    "nnz_padded": "this rank's rows with padding",
    "nnz_gathered": "the gathered rows of all ranks, padding included",
}


class BatchSignature:
    """Stands for the host facts of a batch; kept as long as a batch or a remembered call has it."""


_SIGNATURES: WeakValueDictionary[tuple[object, ...], BatchSignature] = WeakValueDictionary()


def _short(lens: tuple[int, ...]) -> str:
    """Return lengths for a message, or their count and hash where there are many."""
    return str(list(lens)) if len(lens) <= 8 else f"{len(lens)} lengths #{hash(lens) & 0xFFFFFFFF:08x}"


def _index_specs() -> dict[str, TensorSpec]:
    """Return the spec of each index tensor, read off the annotations of `CpBatch`."""
    specs = {}
    for item in fields(CpBatch):
        for hint in (item.type, *get_args(item.type)):
            spec = spec_of(hint)
            if spec is not None:
                specs[item.name] = spec
    return specs


_INDEX_SPECS = _index_specs()
_OPTIONAL = frozenset(item.name for item in fields(CpBatch) if item.default is None)
