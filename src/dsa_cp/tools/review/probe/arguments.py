"""Arguments of a stage for one case, made from its contract record: real tensors, with strides as free as it allows."""

from dataclasses import dataclass
from enum import Enum
from typing import TypeVar, get_args, get_origin

import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, Layout, declare, declare_lasting
from dsa_contracts.core.contract import ParamRecord, StageContract
from dsa_contracts.core.errors import ArgumentError, RankError
from dsa_contracts.core.marks import Contiguous, dim_name, mark_text
from dsa_contracts.core.matching import substitute
from dsa_contracts.core.tensors import TensorSpec
from dsa_contracts.dsa.dims import NnzPadded
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Global, Local, PerRequest, Pool, Sequence, Table
from dsa_cp.layer.local_batch import local_batch, padded_local_batch
from dsa_cp.numerics.rows import take_rows
from dsa_cp.tools.review.probe.cases import Case
from dsa_cp.tools.review.probe.sizes import CP_RANK, CP_SIZE, HEADS, ROPE, probe_batch, sizes_for

_PITCH = 8
"""Elements that a row has beyond its width where a contract leaves row strides free; keeps every part of it aligned."""

CODE = 0x3C
"""A byte that is a number above 0 in every dtype that rows are made of: 1.5 as e4m3, 0.0115 as bf16 and as float32."""


class ProbeComm:
    """A group of which only this rank exists: what the others would send is zeros."""

    @property
    def size(self) -> int:
        """Ranks of the group."""
        return CP_SIZE

    @property
    def rank(self) -> int:
        """This rank."""
        return CP_RANK

    def all_gather(self, rows: Tensor) -> Tensor:
        """Return rows of the right number and width."""
        return rows.new_zeros(self.size * rows.shape[0], rows.shape[1])

    def agree(self, fingerprint: str) -> None:
        """Agree with nobody."""

    def fail(self, reason: str) -> RankError:
        """Return the error that this rank raises."""
        return RankError(reason, code="DSA502")

    def done(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Arguments:
    """A call of a stage: the batch, and every argument by name."""

    batch: CpBatch[Layout]
    values: dict[str, object]


def arguments(contract: StageContract, case: Case, comm: Comm, *, is_dense: bool = False) -> Arguments:
    """Return real arguments of a stage.

    Args:
        contract: the stage's contract.
        case: what its type variables stand for.
        comm: the group, as the rank sees it whose arguments these are.
        is_dense: whether rows are dense also where the contract leaves row strides free.

    Raises:
        ArgumentError: DSA602, an argument is of a kind that a probe cannot make.
    """
    batch = probe_batch(comm.size, comm.rank)
    sizes = sizes_for(batch, case.formats)
    values: dict[str, object] = {}
    for param in contract.params:
        if param.spec is None:
            values[param.name] = _plain(param, case, batch, comm, sizes)
        else:
            known = _known(param.name, substitute(param.spec.rows, case.marks), case, batch, sizes)
            values[param.name] = _tensor(param.spec, case, sizes, is_dense=is_dense) if known is None else known.clone()
    return branded(contract, case, Arguments(batch, values))


def branded(contract: StageContract, case: Case, call: Arguments) -> Arguments:
    """Return a call whose tensors carry the brands that the case says."""
    for param in contract.params:
        value = call.values[param.name]
        if param.spec is not None and isinstance(value, Tensor):
            rows, state = substitute(param.spec.rows, case.marks), substitute(param.spec.state, case.marks)
            if rows in (Pool, Table):
                declare_lasting(value, rows, state, "probe")
            else:
                declare(value, rows, state, call.batch, "probe")
    return call


def _tensor(spec: TensorSpec, case: Case, sizes: dict[str, int], *, is_dense: bool) -> Tensor:
    """Return a tensor with seeded values: rows apart, unless it must be dense."""
    shape: list[int] = []
    for dim in spec.dims:
        mark = case.marks.get(dim.__name__) if isinstance(dim, TypeVar) else dim
        shape += [sizes[dim_name(mark)]] if isinstance(mark, type) else [HEADS, ROPE]
    dtype = getattr(substitute(spec.dtype, case.marks), "torch_dtype", torch.float32)
    return _filled(shape, dtype, is_dense=is_dense or spec.strides is Contiguous)


def _filled(shape: list[int], dtype: torch.dtype, *, is_dense: bool) -> Tensor:
    """Return a tensor of normal values, `CODE` where it holds bytes; rows apart unless it must be dense."""
    width = shape[-1]
    wide = [*shape[:-1], width + (0 if is_dense else _PITCH)]
    if dtype is torch.uint8:
        return torch.full(wide, CODE, dtype=dtype)[..., :width]
    return torch.randn(wide, generator=torch.Generator().manual_seed(width)).to(dtype)[..., :width]


def _known(name: str, rows: object, case: Case, batch: CpBatch[Layout], sizes: dict[str, int]) -> Tensor | None:
    """Return the index tensor that a parameter's name and rows ask for, None for values of a layer."""
    found: dict[str, Tensor | None] = {}
    if get_origin(rows) is Local:
        local = padded_local_batch(batch) if NnzPadded in case.marks.values() else local_batch(batch)
        topk = torch.arange(sizes["index_topk"], dtype=torch.int32)
        topk = torch.where(topk < local.causal_lens[:, None], topk, -1)
        found = {**vars(local), "topk_indices": topk}
    elif rows == Global[Sequence]:
        found = {"positions": batch.positions, "causal_lens": batch.causal_lens, "loc": batch.out_cache_loc}
    elif get_origin(rows) is Global:
        at = batch.gathered_rows
        found = {"positions": take_rows(batch.positions, at), "loc": batch.rank_major_loc}
    elif rows is Pool:
        found = {"positions": torch.zeros(sizes["num_slots"], dtype=torch.int64)}
    elif rows is PerRequest:
        found = {"page_table": batch.page_table}
    return found.get(name)


def _plain(param: ParamRecord, case: Case, batch: CpBatch[Layout], comm: Comm, sizes: dict[str, int]) -> object:
    """Return an argument that is no tensor; raises ArgumentError DSA602 for a type that is not known here."""
    hint = param.hint
    origin = get_origin(hint) or hint
    if origin is type:
        return substitute(get_args(hint)[0], case.marks)
    if origin is int:
        return sizes.get(param.name, ROPE)
    made = {float: 1.0, CpBatch: batch, RowFormat: case.formats.get(param.name), Comm: comm}
    if origin in made:
        return made[origin]
    if isinstance(origin, type) and issubclass(origin, Enum):
        return next(iter(origin))
    raise ArgumentError(f"a probe cannot make {param.name}: {mark_text(hint)}")
