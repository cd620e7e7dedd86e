"""What a plan is made for: backends, layout, row format, group, prefix, pool, phase, and what is known of the engine."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator

from dsa_contracts import Layout
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.row_formats import KV_FORMATS
from dsa_cp.layouts import layout_by_name
from dsa_cp.planner.backends import Phase

PoolKind = Literal["replicated", "sharded"]

CommKind = Literal["collective", "symmetric"]
"""A group that gathers into new memory, or one whose ranks reach each other's memory."""

_COUNTS = ("cp_size", "num_heads", "index_topk", "page_size", "block_table_width")


class PlanOptions(BaseModel):
    """The question that a plan answers.

    Attributes:
        prefill_backend: attention backend of prefill batches.
        decode_backend: attention backend of decode batches, on the same pool.
        layout: which rank holds which tokens, by written name.
        kv_format: row format of the pool.
        cp_size: ranks of the context-parallel group.
        prefix: whether requests may have tokens in the pool already (prefix cache, chunked prefill).
        pool: whether every rank's pool holds the rows of all ranks, or its own share.
        phase: which of the two backends runs.
        comm: whether a gather lands in new memory or may go straight into the pools of all ranks.
        device: compute capability (`10.0`) or architecture (`gfx950`); None: not checked.
        num_heads: query heads on a rank; None: not checked.
        index_topk: width of the top-k indices; None: not checked.
        page_size: slots of a page; None: not checked.
        block_table_width: pages that a block table row holds; None: not checked.
        metadata: fields that the engine builds for this phase; None: not checked, the plan lists what it needs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    prefill_backend: str
    decode_backend: str
    layout: str = "interleave"
    kv_format: str = "fp8"
    cp_size: int = 1
    prefix: bool = True
    pool: PoolKind = "replicated"
    phase: Phase = "prefill"
    comm: CommKind = "collective"
    device: str | None = None
    num_heads: int | None = None
    index_topk: int | None = None
    page_size: int | None = None
    block_table_width: int | None = None
    metadata: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _is_legal(self) -> "PlanOptions":
        """Raise ArgumentError DSA602 for a layout, row format or count that cannot be."""
        layout_by_name(self.layout)
        KV_FORMATS.named(self.kv_format)
        for name in _COUNTS:
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ArgumentError(f"{name} is {count}; it must be at least 1")
        return self

    @property
    def made_layout(self) -> Layout:
        """The layout itself."""
        return layout_by_name(self.layout)

    @property
    def backend(self) -> str:
        """The backend that runs in this phase; the other one decides nothing but what the pool must be."""
        return self.prefill_backend if self.phase == "prefill" else self.decode_backend

    @property
    def ranks(self) -> int:
        """Ranks that share a batch: decode is not sharded."""
        return self.cp_size if self.phase == "prefill" else 1
