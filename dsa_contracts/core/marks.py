"""What a typed tensor states besides its sizes: rows, state, dtype, strides; and the dims that its sizes have names from.

The classes here are marks in annotations (`Ten[rows, state, dtype, strides, *dims]`). A type checker reads them as type
arguments; at run time they are compared with the brand that a stage put on its output. A vocabulary derives its own rows,
states and dims from these bases; the dtypes and strides here are for all of them.
"""

import re
from itertools import chain, count
from typing import ClassVar, Literal, TypeVar, get_args, get_origin
from weakref import WeakValueDictionary

import torch

from dsa_contracts.core.errors import ContractDefinitionError

_WRITTEN: WeakValueDictionary[str, "type[Dim]"] = WeakValueDictionary()
"""The dims that there are, by their written names."""


class Dim:
    """Base of all dims. A dim is a class so that mypy can tell one from another; it is never instantiated.

    The name that a reader sees, in messages and in shapes, is the class name in snake case: `HiddenSize` is `hidden_size`.
    No two dims have one written name, since sizes are bound by it: the second class of a name is written with its module,
    `ring_dims_hidden_size`, unless it states a name.

    Attributes:
        varies: whether the dim may differ between the calls of one scope, as the width of two kinds of rows does.
        written: the written name; a class may state its own, an identifier that no other dim has.
    """

    varies: ClassVar[bool] = False
    written: ClassVar[str] = "dim"

    def __init_subclass__(cls) -> None:
        """Give a dim its written name.

        Raises:
            ContractDefinitionError: DSA001, it states one that is no identifier, or that another dim has.
        """
        super().__init_subclass__()
        stated = vars(cls).get("written")
        cls.written = _free_name(cls) if stated is None else _stated_name(cls, stated)
        _WRITTEN[cls.written] = cls


class Rows:
    """Which rows a tensor holds, in which order.

    Attributes:
        stated: where a tensor of these rows must have a brand in values mode, since no value of it shows which they are:
            `always`, only `in a layer`, or `never`.
        how_stated: what to do where such a tensor has none; empty for the usual advice.
        is_store: whether such a tensor is one store however its places are grouped, as the places of a shelf into boxes.
    """

    stated: ClassVar[Literal["always", "in a layer", "never"]] = "never"
    how_stated: ClassVar[str] = ""
    is_store: ClassVar[bool] = False


class State:
    """In which state the values of a tensor are, where a path has steps that must be taken once and in order."""


class Plain(State):
    """No step of the path concerns these values."""


class DType:
    """Base of the dtype marks.

    Attributes:
        torch_dtype: the one dtype that the mark stands for.
        short: how it is written in messages.
    """

    torch_dtype: ClassVar[torch.dtype]
    short: ClassVar[str]


class BF16(DType):
    """torch.bfloat16."""

    torch_dtype = torch.bfloat16
    short = "bf16"


class F32(DType):
    """torch.float32."""

    torch_dtype = torch.float32
    short = "f32"


class E4M3(DType):
    """torch.float8_e4m3fn."""

    torch_dtype = torch.float8_e4m3fn
    short = "e4m3"


class E5M2(DType):
    """torch.float8_e5m2."""

    torch_dtype = torch.float8_e5m2
    short = "e5m2"


class E8M0(DType):
    """torch.float8_e8m0fnu: a power of two, the scale of a block of microscaled values."""

    torch_dtype = torch.float8_e8m0fnu
    short = "e8m0"


class E2M1X2(DType):
    """torch.float4_e2m1fn_x2: two fp4 values in a byte, so that a dim counts pairs."""

    torch_dtype = torch.float4_e2m1fn_x2
    short = "e2m1x2"


class U8(DType):
    """torch.uint8: bytes that no arithmetic may touch."""

    torch_dtype = torch.uint8
    short = "u8"


class I8(DType):
    """torch.int8."""

    torch_dtype = torch.int8
    short = "i8"


class I32(DType):
    """torch.int32."""

    torch_dtype = torch.int32
    short = "i32"


class I64(DType):
    """torch.int64."""

    torch_dtype = torch.int64
    short = "i64"


class UnitLast:
    """Last stride 1; the other strides are free."""


class Contiguous(UnitLast):
    """Dense, row after row."""


class RowStride(UnitLast):
    """Last stride 1, and rows lie as many bytes apart as the dim `row_dim` says. Subclasses name the dim."""

    row_dim: ClassVar[type[Dim]]


def dim_name(dim: type[Dim]) -> str:
    """Return the written name of a dim: `HiddenSize` is `hidden_size`. Each dim has its own."""
    return dim.written


def _is_another(one: type[Dim], other: type[Dim] | None) -> bool:
    """Whether a class is another dim, and not the same one from before its module was loaded again."""
    if other is None:
        return False
    is_local = "<locals>" in one.__qualname__
    return is_local or (one.__module__, one.__qualname__) != (other.__module__, other.__qualname__)


def _free_name(dim: type[Dim]) -> str:
    """Return the class name in snake case; where another dim has that, with the module, and a number where it must be."""
    plain = re.sub(r"(?<!^)(?=[A-Z])", "_", dim.__name__).lower()
    with_module = re.sub(r"\W+", "_", f"{dim.__module__}_{plain}")
    names = chain((plain, with_module), (f"{with_module}_{number}" for number in count(2)))
    return next(name for name in names if not _is_another(dim, _WRITTEN.get(name)))


def _stated_name(dim: type[Dim], name: object) -> str:
    """Return the name that a dim states; raises ContractDefinitionError DSA001."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ContractDefinitionError(f"{dim.__qualname__} is written {name!r}, which is no identifier")
    other = _WRITTEN.get(name)
    if other is not None and _is_another(dim, other):
        taken = f"{other.__module__}.{other.__qualname__}"
        raise ContractDefinitionError(f"{dim.__qualname__} is written {name}, as {taken} is", facts=[("try", "another name")])
    return name


def mark_text(mark: object) -> str:
    """Return how a mark is written: `All[ByRank[L]]`, `R`, `Packed[F, Cold]`."""
    origin = get_origin(mark)
    if origin is None:
        return getattr(mark, "__name__", str(mark))
    return f"{origin.__name__}[{', '.join(mark_text(arg) for arg in get_args(mark))}]"


def dim_text(dim: object) -> str:
    """Return how a dim is written in a shape."""
    if isinstance(dim, type) and issubclass(dim, Dim):
        return dim_name(dim)
    if isinstance(dim, TypeVar):
        return dim.__name__
    return f"*{mark_text(get_args(dim)[0])}"


def dtype_marks() -> dict[torch.dtype, type[DType]]:
    """Return the mark of every dtype that has one; a vocabulary's own marks count from their definition on."""
    marks: dict[torch.dtype, type[DType]] = {}
    todo = list(DType.__subclasses__())
    while todo:
        mark = todo.pop(0)
        todo += mark.__subclasses__()
        if hasattr(mark, "torch_dtype"):
            marks.setdefault(mark.torch_dtype, mark)
    return marks


def dtype_text(dtype: torch.dtype) -> str:
    """Return how a dtype is written in messages: `bf16`, or torch's own name where no mark stands for it."""
    mark = dtype_marks().get(dtype)
    return str(dtype).removeprefix("torch.") if mark is None else mark.short
