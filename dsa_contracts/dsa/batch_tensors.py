"""The index tensors of a batch: made when somebody first reads them, and then ordinary attributes with a brand."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor

from dsa_contracts.core.brands import Kind, make_brand
from dsa_contracts.core.marks import dim_text
from dsa_contracts.core.matching import substitute
from dsa_contracts.core.tensors import TensorSpec, describe_tensor, spec_of, stride_fault
from dsa_contracts.core.views import set_brand
from dsa_contracts.dsa.batch_rows import BatchRows
from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.index_source import cut_to, engine_rows_of
from dsa_contracts.dsa.slots import BatchSlots, SlotOrder

SLOT_ORDERS = {
    "out_cache_loc": SlotOrder.SEQUENCE,
    "rank_major_loc": SlotOrder.RANK_MAJOR,
    "engine_loc": SlotOrder.ENGINE,
}
"""Slots by the order of their rows."""

OPTIONAL_TENSORS = frozenset(("page_table", *SLOT_ORDERS))
"""Tensors that a batch may be without."""

NOT_FROM_SOURCE = OPTIONAL_TENSORS | {"shard_rows", "engine_rows"}
"""Tensors that are made from others, or given."""

ON_FIRST_READ = object()
"""What an index tensor is before somebody reads it."""


def on_first_read() -> Any:
    """Return what stands for an index tensor of `CpBatch` that is to be made when somebody reads it."""
    return ON_FIRST_READ


class MadeOnFirstRead:
    """Stands on a class of batches for an index tensor that an object does not hold yet, and is read once.

    What an object holds goes before this. A `__getattr__` would do the same, and make each read of any attribute slower: a
    check reads seven.
    """

    def __init__(self, name: str) -> None:
        """Stand for the tensor of this name."""
        self.name = name

    def __get__(self, batch: "IndexTensors | None", owner: type | None = None) -> "Tensor | MadeOnFirstRead | None":
        """Make the tensor."""
        return self if batch is None else batch.first_read(self.name)


class IndexTensors(BatchRows):
    """The index tensors of a batch, by the annotations of the class that derives from this one.

    Attributes:
        made: those that were made or given, by name; views of one batch share them.
    """

    made: dict[str, Tensor | None]
    slots: BatchSlots | None

    if TYPE_CHECKING:  # fields of the class that derives from this one, which says more of each
        positions: Tensor
        causal_lens: Tensor
        request_of_row: Tensor
        local_rows: Tensor
        padded_rows: Tensor
        padded_index: Tensor
        local_request_of_row: Tensor
        gathered_rows: Tensor
        restore_index: Tensor
        shard_rows: Tensor
        engine_rows: Tensor

    @property
    def device(self) -> torch.device:
        """Where the index tensors, and so the tensors of every stage, are."""
        return self.positions.device if self.source is None else self.source.device

    def first_read(self, name: str) -> Tensor | None:
        """Return an index tensor that this object does not hold yet: one that a view of the batch has made, or a new one."""
        if name not in self.made:
            tensor = self.made_now(name)
            self.made[name] = None if tensor is None else self.adopted(name, tensor)
        return self.keep(name, self.made[name])

    def make_index_tensors(self) -> None:
        """Every index tensor is made: nothing is left to be made, and moved, while a stream captures or a fake mode runs."""
        for name in index_specs(type(self)):
            getattr(self, name)

    def keep(self, name: str, tensor: Tensor | None) -> Tensor | None:
        """Put an index tensor where it is found as an ordinary attribute, here and by views made before."""
        self.made[name] = tensor
        object.__setattr__(self, name, tensor)
        return tensor

    def made_now(self, name: str) -> Tensor | None:
        """Return an index tensor that nobody gave; None for slots where there are none."""
        if name in SLOT_ORDERS:
            return None if self.slots is None else self.slots.ordered(SLOT_ORDERS[name], self)
        if name == "shard_rows":
            return cut_to(self.padded_rows, self.nnz_shard)
        if name == "engine_rows":
            return engine_rows_of(self.extend_lens, self.padded_lens, self.nnz_engine).to(self.device)
        if self.source is None:
            raise BatchError(f"{name} is missing, and this batch has no source to make it from", code="DSA303")
        return self.source.tensor(name, self.cp_rank)

    def adopted(self, name: str, tensor: Tensor, positions: object = None) -> Tensor:
        """Return a branded view of one index tensor, once it is as its annotation says: its giver may reuse it."""
        spec = index_specs(type(self))[name]
        counts = {**self.row_counts, "nnz_shard": self.nnz_shard, "nnz_engine": self.nnz_engine}
        sizes = tuple(counts.get(dim_text(dim)) for dim in spec.dims)
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
        device = positions.device if isinstance(positions, Tensor) else self.device
        if tensor.device != device:
            raise BatchError(
                f"{name} is on {tensor.device}, positions are on {device}",
                code="DSA303",
                facts=[("got", describe_tensor(tensor)), ("where", self.where)],
            )
        rows = substitute(spec.rows, self.bound_marks)
        kind = Kind(rows, spec.state, self.variant_of(rows), f"batch.{name}", is_declared=False)
        own = tensor.view_as(tensor)
        set_brand(own, make_brand(kind, self.token, None))
        return own

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


_SPECS: dict[str, Mapping[str, TensorSpec]] = {}


def index_specs(batch: type[Any]) -> Mapping[str, TensorSpec]:
    """Return the spec of each index tensor, read off the annotations of a class of batches."""
    name = f"{batch.__module__}.{batch.__qualname__}"
    if name not in _SPECS:
        hints = [(item.name, hint) for item in fields(batch) for hint in (item.type, *get_args(item.type))]
        _SPECS[name] = {field: spec for field, hint in hints if (spec := spec_of(hint)) is not None}
    return _SPECS[name]
