"""KV row formats: which bytes of a packed row are what. One record serves packing, splitting, the planner and checks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.extensions import Registry
from dsa_contracts.core.marks import BF16, E4M3, F32, DType
from dsa_contracts.core.parts import Marked
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, Fp8Row656, IndexBf16Row, IndexFp8Row

FT_co = TypeVar("FT_co", covariant=True)
NT_co = TypeVar("NT_co", bound=DType, covariant=True)
RT_co = TypeVar("RT_co", bound=DType, covariant=True)

SCALE_GROUP = 128
"""Latent elements that share one float32 scale in `fp8_656`."""


@dataclass(frozen=True)
class RowPart:
    """One run of a packed row: `count` elements of `dtype` that start at byte `offset`."""

    name: str
    dtype: type[DType]
    count: int
    offset: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the part."""
        return self.count * int(self.dtype.torch_dtype.itemsize)

    @property
    def columns(self) -> slice:
        """Byte columns of the part in a packed row."""
        return slice(self.offset, self.offset + self.num_bytes)


@dataclass(frozen=True)
class RowFormat(Marked, Generic[FT_co, NT_co, RT_co]):
    """A packed row, part by part.

    Attributes:
        name: `bf16`, `fp8`, `fp8_656`, `index_bf16`, `index_fp8`.
        mark: the format's mark in `Packed[...]`.
        parts: the parts in byte order, without gaps.
        is_quantized: whether scales other than 1 are legal.
        key: name of the part that holds the latent, or the indexer key.
        rope: name of the rope part; None for rows without one.
        scales: name of the part with the scales of the key part, each for as many elements, in that part's own dtype; None
            where rows hold no scales.

    Raises:
        ArgumentError: DSA602, a part that is named is not there, or parts leave a gap or overlap.
    """

    name: str
    mark: type[FT_co]
    parts: tuple[RowPart, ...]
    is_quantized: bool
    key: str
    rope: str | None = None
    scales: str | None = None

    def __post_init__(self) -> None:
        """Refuse parts that do not fit; see the class."""
        for named in (self.key, self.rope, self.scales):
            if named is not None:
                self.part(named)
        ends = [part.columns.stop for part in self.parts]
        for part, end in zip(self.parts, [0, *ends], strict=False):
            if part.offset != end:
                raise ArgumentError(
                    f"row format {self.name}: {part.name} is at byte {part.offset}, the part before ends at {end}"
                )

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.mark, self.parts, self.is_quantized))

    def __hash__(self) -> int:
        """Return the hash of the fields, computed once: a format is part of every signature."""
        return self._hash

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return int(self.parts[-1].columns.stop)

    @property
    def type_marks(self) -> tuple[object, ...]:
        """What the type parameters of this format are: its mark, the dtype of the key, the dtype of the rope part.

        Rows without a rope part have that of their scales there, and where they have none that of the key again.
        """
        return (self.mark, self.part(self.key).dtype, self.part(self.rope or self.scales or self.key).dtype)

    @property
    def has_layer_scale(self) -> bool:
        """Whether codes are under one scale a layer, kept beside the pool, instead of scales inside the rows."""
        return self.is_quantized and self.scales is None

    @property
    def scale_part(self) -> RowPart | None:
        """The part that holds scales, None where rows hold none."""
        return None if self.scales is None else self.part(self.scales)

    @property
    def value_parts(self) -> tuple[RowPart, ...]:
        """The parts that hold values, and not scales of values."""
        return tuple(part for part in self.parts if part.name != self.scales)

    def part(self, name: str) -> RowPart:
        """Return a part by name; raises ArgumentError DSA602 naming the parts there are."""
        for part in self.parts:
            if part.name == name:
                return part
        known = ", ".join(part.name for part in self.parts)
        raise ArgumentError(f"row format {self.name} has no part {name!r}; it has {known}")


def _parts(*described: tuple[str, type[DType], int]) -> tuple[RowPart, ...]:
    """Lay parts out one after the other."""
    parts: list[RowPart] = []
    for name, dtype, count in described:
        offset = parts[-1].columns.stop if parts else 0
        parts.append(RowPart(name, dtype, count, offset))
    return tuple(parts)


def bf16_format(kv_lora_rank: int = 512, qk_rope_head_dim: int = 64) -> RowFormat[Bf16Row, BF16, BF16]:
    """bf16 latent and rope part: 1152 bytes at 512 + 64."""
    parts = _parts(("k_nope", BF16, kv_lora_rank), ("k_rope", BF16, qk_rope_head_dim))
    return RowFormat("bf16", Bf16Row, parts, is_quantized=False, key="k_nope", rope="k_rope")


def fp8_format(kv_lora_rank: int = 512, qk_rope_head_dim: int = 64) -> RowFormat[Fp8Row, E4M3, E4M3]:
    """Flat e4m3, one scale for a layer: 576 bytes at 512 + 64."""
    parts = _parts(("k_nope", E4M3, kv_lora_rank), ("k_rope", E4M3, qk_rope_head_dim))
    return RowFormat("fp8", Fp8Row, parts, is_quantized=True, key="k_nope", rope="k_rope")


def fp8_656_format(kv_lora_rank: int = 512, qk_rope_head_dim: int = 64) -> RowFormat[Fp8Row656, E4M3, BF16]:
    """e4m3 latent, a float32 scale for each 128 of it, bf16 rope part: 656 bytes at 512 + 64.

    Raises:
        ArgumentError: DSA602, `kv_lora_rank` is no multiple of 128.

    Source: the DeepSeek-V3.2 layout of FlashMLA's sparse decoding kernel.
    """
    if kv_lora_rank % SCALE_GROUP:
        raise ArgumentError(f"fp8_656 needs kv_lora_rank in multiples of {SCALE_GROUP}, got {kv_lora_rank}")
    scales = ("scales", F32, kv_lora_rank // SCALE_GROUP)
    parts = _parts(("k_nope", E4M3, kv_lora_rank), scales, ("k_rope", BF16, qk_rope_head_dim))
    return RowFormat("fp8_656", Fp8Row656, parts, is_quantized=True, key="k_nope", rope="k_rope", scales="scales")


def index_bf16_format(index_head_dim: int = 128) -> RowFormat[IndexBf16Row, BF16, BF16]:
    """bf16 indexer key: 256 bytes at 128."""
    parts = _parts(("k_index", BF16, index_head_dim))
    return RowFormat("index_bf16", IndexBf16Row, parts, is_quantized=False, key="k_index")


def index_fp8_format(index_head_dim: int = 128) -> RowFormat[IndexFp8Row, E4M3, F32]:
    """e4m3 indexer key and one float32 scale: 132 bytes at 128."""
    parts = _parts(("k_index", E4M3, index_head_dim), ("scales", F32, 1))
    return RowFormat("index_fp8", IndexFp8Row, parts, is_quantized=True, key="k_index", scales="scales")


KV_FORMATS: Registry[Callable[[int, int], RowFormat[Any, Any, Any]]] = Registry(
    "dsa_contracts.row_formats",
    {"bf16": bf16_format, "fp8": fp8_format, "fp8_656": fp8_656_format},
    what="row format",
    is_one=callable,
)
"""The formats of KV rows by name: each a function of `kv_lora_rank` and `qk_rope_head_dim`."""
