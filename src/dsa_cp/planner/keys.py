"""What K is between two stages, in the words of the plan's table."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args, get_origin

from dsa_contracts.core.marks import Dim, DType, mark_text
from dsa_contracts.core.tensors import TensorSpec
from dsa_contracts.dsa.codes import PlanError
from dsa_contracts.dsa.dims import KvLoraRank, QkRopeHeadDim
from dsa_contracts.dsa.row_formats import KV_FORMATS, RowFormat
from dsa_contracts.dsa.states import Global, Packed, Pool, Rotated

if TYPE_CHECKING:
    from dsa_cp.planner.moves import Held, Holdings, Move

DIMS: dict[type[Dim], int] = {KvLoraRank: 512, QkRopeHeadDim: 64}
"""Widths that bytes are counted with: those of DeepSeek-V3.2 and GLM-5."""


@dataclass(frozen=True)
class KeyState:
    """K at one place of a path.

    Attributes:
        rows: `local`, `global` or `pool`.
        order: the layout's local order, `rank-major`, `sequence`, or `slots`.
        rope: `raw` or `rotated`.
        dtype: `bf16` for halves, else the packed row format.
        strides: strides of the rows, as their marks are written.
        bytes_per_token: bytes of a token's row.
    """

    rows: str
    order: str
    rope: str
    dtype: str
    strides: str
    bytes_per_token: int

    @property
    def is_in_pool(self) -> bool:
        """Whether the rows stand in the pool."""
        return self.rows == "pool"

    @property
    def row_format(self) -> str:
        """The packed row format; of halves, that of bf16 rows."""
        return self.dtype.removesuffix(" halves")

    @property
    def is_quantized(self) -> bool:
        """Whether values have been quantised."""
        if self.dtype.endswith(" halves"):
            return not self.dtype.startswith("bf16")
        return format_named(self.row_format).is_quantized

    def is_at_least_as(self, earlier: "tuple[KeyState, ...]") -> bool:
        """Whether K has been in this state before, strides aside."""
        mine = (self.rows, self.order, self.rope, self.dtype)
        return any((state.rows, state.order, state.rope, state.dtype) == mine for state in earlier)


def format_named(name: str) -> RowFormat[object, object, object]:  # type: ignore[type-var]
    """Return a KV row format at the widths that bytes are counted with."""
    return KV_FORMATS[name](DIMS[KvLoraRank], DIMS[QkRopeHeadDim])


def key_state(state: "Holdings") -> KeyState:
    """Return what K is, from the tensors that are held for it."""
    held = [tensor for tensor in state if tensor.is_key]
    if len(held) == 1:
        return _packed(held[0])
    rope = next(tensor.spec for tensor in held if QkRopeHeadDim in tensor.spec.dims)
    latent = next(tensor.spec for tensor in held if KvLoraRank in tensor.spec.dims)
    rows, order = _rows(latent)
    num_bytes = sum(_item_bytes(spec.dtype) * DIMS[dim] for spec in (latent, rope) for dim in spec.dims if dim in DIMS)
    dtype = f"{mark_text(latent.dtype).lower()} halves"
    rotated = "rotated" if rope.state is Rotated else "raw"
    return KeyState(rows, order, rotated, dtype, mark_text(latent.strides), num_bytes)


def _item_bytes(dtype: object) -> int:
    """Return the bytes of one element of a dtype mark."""
    return int(dtype.torch_dtype.itemsize) if isinstance(dtype, type) and issubclass(dtype, DType) else 0


def _packed(held: "Held") -> KeyState:
    """Return what K is as packed rows."""
    if get_origin(held.spec.state) is not Packed:
        raise PlanError(f"K is {held.spec.describe()}, neither halves nor packed rows", code="DSA402")
    mark, rope = get_args(held.spec.state)
    row_format = next(made for made in map(format_named, KV_FORMATS.known()) if made.mark is mark)
    rows, order = _rows(held.spec)
    rotated = "rotated" if rope is Rotated else "raw"
    return KeyState(rows, order, rotated, row_format.name, mark_text(held.spec.strides), row_format.row_bytes)


def _rows(spec: TensorSpec) -> tuple[str, str]:
    """Return rows and order in words."""
    if spec.rows is Pool:
        return "pool", "slots"
    (inner,) = get_args(spec.rows)
    if get_origin(spec.rows) is Global:
        return "global", "rank-major" if get_origin(inner) is not None else "sequence"
    return "local", mark_text(inner).lower()


def placement_name(moves: "tuple[Move, ...]", keys: tuple[KeyState, ...]) -> str:
    """Return the written name of a placement: its stages that rotate, quantise or gather K, in order.

    Args:
        moves: the stages.
        keys: what K is before the first, and after each.
    """
    words = []
    for move, before, after in zip(moves, keys, keys[1:], strict=False):
        gathers = move.contract.comm_param is not None
        quantizes = after.is_quantized and not before.is_quantized
        if move.moves_keys and (gathers or quantizes or after.rope != before.rope):
            words.append(word_for(move.contract.name))
    return "_".join(words)


def word_for(stage: str) -> str:
    """Return a stage's word in the name of a placement: `rope` for apply_rope, `gather` for all_gather_kv."""
    return stage.removeprefix("apply_").removeprefix("all_").removesuffix("_kv")
