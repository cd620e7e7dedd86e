"""`CpBatch`: everything that depends on the batch and not on the layer, as one rank sees it.

Index tensors are made once per batch, from the segments of the layout, when somebody first reads them; a layer only
indexes. Row counts are bound here for all stages of the batch. `dsa_cp.layouts.build_batch` makes a batch from lengths,
`CpBatch.from_engine` from what an engine has.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Listed
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from dsa_contracts.core.bound_dims import BoundDims, CheckLog
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.marks import I32, I64, Contiguous, mark_text
from dsa_contracts.core.tensors import Ten, describe_tensor
from dsa_contracts.dsa.batch_facts import check_lens, check_padding, check_ranks, check_row_counts
from dsa_contracts.dsa.batch_itself import check_batch
from dsa_contracts.dsa.batch_rows import short_text
from dsa_contracts.dsa.batch_tensors import (
    NOT_FROM_SOURCE,
    ON_FIRST_READ,
    OPTIONAL_TENSORS,
    SLOT_ORDERS,
    IndexTensors,
    MadeOnFirstRead,
    index_specs,
    on_first_read,
)
from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.dims import MaxPages, Nnz, NnzEngine, NnzGathered, NnzLocal, NnzPadded, NnzShard, NumRequests
from dsa_contracts.dsa.engine_facts import NO_COUNTS, RowCounts, engine_facts, engine_slots
from dsa_contracts.dsa.index_source import IndexSource
from dsa_contracts.dsa.slots import SKIP_NEGATIVE, BatchSlots, SlotOrder
from dsa_contracts.dsa.states import (
    EngineOrder,
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
class CpBatch(IndexTensors, Generic[L]):
    """One batch on one rank of a context-parallel group.

    "Row" is the index of a token in sequence order: request by request, `0 .. nnz-1`, engine padding not counted.

    Index tensors that are not given are made from `source` and `slots` when somebody first reads them, and then are
    ordinary attributes. A tensor is made for one batch and the views of its layers; threads share no batch.

    Attributes:
        layout: which rank holds which tokens.
        cp_size: ranks of the group.
        cp_rank: this rank.
        extend_lens: new tokens of each request.
        prefix_lens: tokens of each request that are already in the KV pool.
        padded_lens: tokens of each request as the engine holds them, padding included; layouts cut these.
        rank_lens: `nnz_local` of every rank.
        nnz_padded: rows of every rank in the collective.
        source: what index tensors are made from; None where all of them are given.
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
        rank_major_loc: slot of each gathered row; `slot_skip` for padding and for all copies of a replicated row but one.
        shard_rows: this rank's rows as an engine shapes its tensors; -1 is a padding row. `padded_rows` where it shapes them
            as the collective does.
        engine_rows: row at each place of what an engine carries for all ranks; -1 is a padding row.
        engine_loc: slot of each of `engine_rows`; `slot_skip` for padding.
        page_table: pages of each request, in token order; None where the caller gave none.
        page_size: slots of a page.
        layer: the layer that the stages now work for, None outside of a layer.
        plan: name of the plan that the path follows, empty where there is none.
        slots: what slots are made from; None where the caller gave none, or gave all.
        slot_skip: the slot that the writer passes over; below 0: every negative one.
        owned: bool [nnz], whether this rank's pool holds the row, on the device; None: it holds every row. A row that it
            does not hold has no slot here, as where decode context parallelism shards the pool.
        padding: what padding rows hold: `zero`, or `ignored` where an engine puts anything there and reads nothing.
        shard_size: rows of this rank's tensors; None: `nnz_padded`.
        engine_size: rows of all ranks as an engine carries them; None: `nnz`.
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
    source: IndexSource | None = field(default=None, repr=False)
    positions: Ten[Global[Sequence], Positions, I64, Contiguous, Nnz] = field(default_factory=on_first_read)
    causal_lens: Ten[Global[Sequence], KeyCounts, I32, Contiguous, Nnz] = field(default_factory=on_first_read)
    request_of_row: Ten[Global[Sequence], RequestIds, I32, Contiguous, Nnz] = field(default_factory=on_first_read)
    local_rows: Ten[Local[L], RowIds, I64, Contiguous, NnzLocal] = field(default_factory=on_first_read)
    padded_rows: Ten[Local[L], RowIds, I64, Contiguous, NnzPadded] = field(default_factory=on_first_read)
    padded_index: Ten[Local[L], RowPlaces, I64, Contiguous, NnzLocal] = field(default_factory=on_first_read)
    local_request_of_row: Ten[Local[L], RequestIds, I32, Contiguous, NnzLocal] = field(default_factory=on_first_read)
    gathered_rows: Ten[Global[RankMajor[L]], RowIds, I64, Contiguous, NnzGathered] = field(default_factory=on_first_read)
    restore_index: Ten[Global[Sequence], RowPlaces, I64, Contiguous, Nnz] = field(default_factory=on_first_read)
    shard_rows: Ten[Local[L], RowIds, I64, Contiguous, NnzShard] = field(default_factory=on_first_read)
    engine_rows: Ten[Global[EngineOrder], RowIds, I64, Contiguous, NnzEngine] = field(default_factory=on_first_read)
    out_cache_loc: Ten[Global[Sequence], TokenSlots, I64, Contiguous, Nnz] | None = field(default_factory=on_first_read)
    rank_major_loc: Ten[Global[RankMajor[L]], TokenSlots, I64, Contiguous, NnzGathered] | None = field(
        default_factory=on_first_read
    )
    engine_loc: Ten[Global[EngineOrder], TokenSlots, I64, Contiguous, NnzEngine] | None = field(default_factory=on_first_read)
    page_table: Ten[PerRequest, PageIds, I32, Contiguous, NumRequests, MaxPages] | None = None
    page_size: int = 64
    layer: int | None = None
    plan: str = ""
    slots: BatchSlots | None = field(default=None, repr=False)
    slot_skip: int = SKIP_NEGATIVE
    owned: Tensor | None = field(default=None, repr=False)
    padding: str = "zero"
    shard_size: int | None = None
    engine_size: int | None = None
    token: object = field(default_factory=object, repr=False)
    dims: BoundDims = field(default_factory=BoundDims, repr=False)
    log: CheckLog = field(default_factory=CheckLog, repr=False)
    made: dict[str, Tensor | None] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check that the facts fit together, bind the row counts and brand the index tensors that are given.

        Raises:
            BatchError: DSA301 (lengths), DSA302 (cp_size, cp_rank), DSA303 (an index tensor has another size).
            ArgumentError: DSA602 (padding).
        """
        check_ranks(self.cp_size, self.cp_rank)
        check_padding(self.padding)
        check_lens(self.extend_lens, self.prefix_lens, self.padded_lens)
        if len(self.rank_lens) != self.cp_size:
            raise BatchError(f"rank_lens has {len(self.rank_lens)} entries for cp_size {self.cp_size}")
        if sum(self.rank_lens) < self.nnz or min(self.rank_lens) < 0:
            lens = short_text(self.rank_lens)
            raise BatchError(f"rank_lens {lens} do not hold the {self.nnz} tokens of the batch", code="DSA303")
        if max(self.rank_lens) > self.nnz_padded:
            raise BatchError(
                f"nnz_padded {self.nnz_padded} is below {max(self.rank_lens)}, the rows of the fullest rank",
                code="DSA303",
                facts=[("try", "pad to the largest nnz_local, not to ceil(nnz / cp_size)")],
            )
        check_row_counts(self.nnz_local, self.shard_size, self.nnz, self.engine_size)
        for name, value in self.row_counts.items():
            self.dims.bind(name, value, f"batch ({self.layout.name}, cp_rank {self.cp_rank} of {self.cp_size})")
        given = {name: self.__dict__.pop(name) for name in index_specs(type(self))}
        for name, tensor in given.items():
            if tensor is ON_FIRST_READ and name not in NOT_FROM_SOURCE and self.source is None:
                raise BatchError(f"{name} is missing: give it, or the source that it is made from", code="DSA303")
        for name, tensor in given.items():
            if tensor is not ON_FIRST_READ:
                taken = (
                    None if tensor is None and name in OPTIONAL_TENSORS else self.adopted(name, tensor, given["positions"])
                )
                self.keep(name, taken)
        self._check_owned()

    def _check_owned(self) -> None:
        """Raise BatchError DSA303 unless `owned` is None or bool [nnz] on the device."""
        owned = self.owned
        if owned is None:
            return
        fits = isinstance(owned, Tensor) and owned.dtype == torch.bool and owned.shape == (self.nnz,)
        if not fits or owned.device != self.device:
            expected, got = f"bool[{self.nnz}] on {self.device}", describe_tensor(owned)
            facts = [("expected", expected), ("got", got), ("where", self.where)]
            raise BatchError("owned does not fit this batch", code="DSA303", facts=facts)

    @property
    def type_marks(self) -> tuple[object, ...]:
        """The class of the layout, which `CpBatch[L]` calls `L`."""
        return (type(self.layout),)

    def variant_of(self, rows: object) -> str:
        """Return the layout's name, parameters included, for rows that depend on the layout."""
        text = mark_text(rows)
        return self.layout.name if text.startswith("Local[") or "RankMajor[" in text else ""

    def check_itself(self, stage: str, location: str) -> None:
        """Compare the index tensors with the lengths; see `batch_itself.check_batch`."""
        check_batch(self, stage, location)

    @cached_property
    def signature(self) -> "BatchSignature":
        """Host facts that contracts read, as one object for all batches that agree in them; its hash is its identity."""
        table = None if self.page_table is None else tuple(self.page_table.shape)
        facts = (self.layout, self.cp_size, self.cp_rank, self.nnz, self.nnz_local, self.nnz_padded)
        more = (self.num_requests, self.max_seq_len, self.page_size, table, str(self.device), self.plan)
        counts = (self.nnz_shard, self.nnz_engine)
        return _SIGNATURES.setdefault((*facts, *more, *counts), BatchSignature())

    @cached_property
    def fingerprint(self) -> str:
        """The batch and plan as every rank of the group must see them; compared before each collective."""
        return (
            f"{self.layout.name} cp_size={self.cp_size} nnz_padded={self.nnz_padded} extend={short_text(self.extend_lens)} "
            f"prefix={short_text(self.prefix_lens)} plan={self.plan or '-'}"
        )

    def at_layer(self, layer: int) -> "CpBatch[L]":
        """Return this batch as the stages of one layer see it; index tensors, dims and log are shared."""
        view = copy(self)
        object.__setattr__(view, "layer", layer)
        return view

    def with_slots(
        self,
        out_cache_loc: Tensor,
        *,
        order: SlotOrder = SlotOrder.SEQUENCE,
        skip: int = SKIP_NEGATIVE,
        owned: Tensor | None = None,
    ) -> "CpBatch[L]":
        """Return this batch with the slots that an engine has decided since; its token, dims and log are shared.

        Args:
            out_cache_loc: int64, one slot a row.
            order: of which rows. Slots in sequence order may stand for padding too, as the engine carries it.
            skip: the slot that the writer passes over; below 0: every negative one. sglang's writer skips 0, vLLM's -1.
            owned: bool [nnz], which rows this rank's pool holds; None: every one.

        Raises:
            BatchError: DSA301 (slots), DSA303 (`owned`).
        """
        sizes = {SlotOrder.SEQUENCE: self.nnz, SlotOrder.ENGINE: self.nnz_engine, SlotOrder.RANK_MAJOR: self.nnz_gathered}
        slots = engine_slots(out_cache_loc.to(self.device), order, sizes, skip)
        view = copy(self)
        kept = {name: tensor for name, tensor in self.made.items() if name not in SLOT_ORDERS}
        for name in SLOT_ORDERS:
            view.__dict__.pop(name, None)
        for name, value in (("made", kept), ("slots", slots), ("slot_skip", skip), ("owned", owned)):
            object.__setattr__(view, name, value)
        view._check_owned()
        return view

    @classmethod
    def from_engine(
        cls,
        layout: L,
        cp_size: int,
        cp_rank: int,
        extend_lens: Listed[int],
        prefix_lens: Listed[int] | None = None,
        *,
        rows: RowCounts = NO_COUNTS,
        padded_lens: Listed[int] | None = None,
        out_cache_loc: Tensor | None = None,
        order: SlotOrder = SlotOrder.SEQUENCE,
        skip: int = SKIP_NEGATIVE,
        owned: Tensor | None = None,
        padding: str = "zero",
        page_table: Tensor | None = None,
        page_size: int = 64,
        device: torch.device | str | None = None,
        plan: str = "",
        decodes: Listed[bool] = (),
        indices: Mapping[str, Tensor] | None = None,
    ) -> "CpBatch[L]":
        """Return the batch that an engine has cut: its segments, its row counts, its slots, and index tensors that it made.

        Args:
            layout: which rank holds which tokens; `GivenLayout` where the engine's own segments say it.
            cp_size: ranks.
            cp_rank: this rank.
            extend_lens: new tokens of each request; 0 for one that is not worked on.
            prefix_lens: cached tokens of each request; None for none.
            rows: row counts of the engine's tensors; what is None is as in a batch of `build_batch`.
            padded_lens: tokens of each request as the layout cuts them; None: rows that the engine carries beyond the tokens
                of the batch are padding behind the last request.
            out_cache_loc: int64, one slot a row; this and the next three as in `with_slots`.
            order: of which rows these are.
            skip: the slot that the writer passes over; below 0: every negative one.
            owned: bool [nnz], which rows this rank's pool holds; None: every one.
            padding: `zero`, or `ignored` where the engine's padding rows hold anything.
            page_table: int32 [num_requests, max_pages].
            page_size: slots of a page.
            device: of the index tensors; None for that of `out_cache_loc`, else of `page_table`, else the CPU.
            plan: name of the plan that the path follows.
            decodes: whether each request is a decode, which some layouts put elsewhere; empty where none is.
            indices: index tensors of this class by name, as the engine has them; others are made from the segments.

        Raises:
            BatchError: DSA301 (lengths, slots, pages), DSA302 (ranks), DSA303 (rows lost or doubled, an index tensor's size).
            ArgumentError: DSA602 (layout, page_size, device, plan, padding, a name in `indices`).
        """
        lens = (extend_lens, prefix_lens, padded_lens)
        facts = engine_facts(
            layout, (cp_size, cp_rank), lens, rows, out_cache_loc, page_table, page_size, device, plan, decodes
        )
        unknown = sorted(set(indices or {}) - set(index_specs(cls)))
        if unknown:
            raise ArgumentError(f"indices has {unknown[0]!r}; it may have {', '.join(index_specs(cls))}")
        named: dict[str, Any] = dict(indices or {})
        extend, prefix, padded = facts.source.lens
        batch = cls(
            layout=layout,
            cp_size=cp_size,
            cp_rank=cp_rank,
            extend_lens=extend,
            prefix_lens=prefix,
            padded_lens=padded,
            rank_lens=facts.source.rows.real,
            nnz_padded=facts.source.nnz_padded,
            source=facts.source,
            page_table=named.pop("page_table", facts.page_table),
            page_size=page_size,
            plan=plan,
            padding=padding,
            shard_size=rows.shard,
            engine_size=rows.engine,
            **named,
        )
        if out_cache_loc is None:
            return batch
        return batch.with_slots(out_cache_loc, order=order, skip=skip, owned=owned)


class BatchSignature:
    """Stands for the host facts of a batch; kept as long as a batch or a remembered call has it."""


_SIGNATURES: WeakValueDictionary[tuple[object, ...], BatchSignature] = WeakValueDictionary()

for _name in index_specs(CpBatch):
    setattr(CpBatch, _name, MadeOnFirstRead(_name))
