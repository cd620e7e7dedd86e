"""A toy vocabulary: a crew of runners shares parcels. The core's tests use it, and no word of a real path.

A parcel is cold until it is turned, then warm. `Mine` are one runner's parcels, `All` those of every runner; parcels may be
boxed into bytes, and a box says which rows fit it.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, Generic, TypeVar, TypeVarTuple

import torch
from torch import Tensor

from dsa_contracts.core.brands import brand
from dsa_contracts.core.comm import Comm
from dsa_contracts.core.contract import contract, contract_of
from dsa_contracts.core.declarations import declare
from dsa_contracts.core.errors import ContractError
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.core.marks import BF16, I64, U8, Contiguous, Dim, DType, Plain, Rows, RowStride, State, UnitLast, mark_text
from dsa_contracts.core.modes import Mode
from dsa_contracts.core.parts import Marked
from dsa_contracts.core.runtime.call_cache import CallCache
from dsa_contracts.core.runtime.stage import _Checked, stage
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.tensors import Ten


class Total(Dim):
    """Parcels of all runners."""


class Own(Dim):
    """Parcels of this runner."""


class Seats(Dim):
    """Rows of each runner where all have as many: empty ones included."""


class Width(Dim):
    """Width of a parcel."""


class Depth(Dim):
    """Another width."""


class Height(Dim):
    """A third one."""


class BoxBytes(Dim):
    """Bytes of a boxed parcel."""

    varies = True


class Way:
    """How parcels are shared out."""

    name: str

    def owner(self, parcel: int, runners: int) -> int:
        """Return the runner that has a parcel."""
        raise NotImplementedError


class Turns(Way):
    """One by one, the last runner first."""

    name = "turns"

    def owner(self, parcel: int, runners: int) -> int:
        """Return the runner that has a parcel."""
        return runners - 1 - parcel % runners


class Blocks(Way):
    """So many in a row to each."""

    def __init__(self, size: int = 1) -> None:
        """Keep how many."""
        self.size = size
        self.name = "blocks" if size == 1 else f"blocks(size={size})"

    def owner(self, parcel: int, runners: int) -> int:
        """Return the runner that has a parcel."""
        return parcel // self.size % runners


V = TypeVar("V", bound=Way)
O = TypeVar("O", bound="Order")  # noqa: E741 - the letter of "order"
T = TypeVar("T", bound="Warmth")
B = TypeVar("B", bound="BoxMark")
D = TypeVar("D", bound=DType)
C = TypeVar("C", bound=UnitLast)
R = TypeVar("R", bound=Rows)
N = TypeVar("N", Own, Seats)
M = TypeVar("M", Total, Own, Seats)
Ds = TypeVarTuple("Ds")


class Order:
    """The order of the parcels of all runners."""


class InOrder(Order):
    """As they came."""


class ByRunner(Order, Generic[V]):
    """Runner by runner, empty seats included."""


class Mine(Rows, Generic[V]):
    """One runner's parcels."""

    stated = "always"


class All(Rows, Generic[O]):
    """Parcels of all runners."""

    stated = "always"


class Shelf(Rows):
    """Where parcels stay when the crew has gone."""

    stated = "in a layer"
    how_stated = "say whose shelf it is"


class Warmth(State):
    """Cold or warm."""


class Cold(Warmth):
    """To be turned."""


class Warm(Warmth):
    """Turned, once."""


class BoxMark:
    """A kind of box."""


class SmallBox(BoxMark):
    """Small."""


class LargeBox(BoxMark):
    """Large."""


class Boxed(State, Generic[B, T]):
    """Bytes of boxed parcels."""


class BoxStride(RowStride):
    """Rows one box apart."""

    row_dim = BoxBytes


class Box(Marked, Generic[B, D]):
    """A box, as a value."""

    def __init__(self, mark: type[B], dtype: type[D]) -> None:
        """Keep what the type parameters are."""
        self.mark, self.dtype, self.name = mark, dtype, mark.__name__

    def __eq__(self, other: object) -> bool:
        """Equal by what they are."""
        return isinstance(other, Box) and (self.mark, self.dtype) == (other.mark, other.dtype)

    def __hash__(self) -> int:
        """Follow equality."""
        return hash((self.mark, self.dtype))

    @property
    def type_marks(self) -> tuple[object, ...]:
        """The box mark and the dtype of what is in it."""
        return self.mark, self.dtype


_SIGNATURES: dict[object, object] = {}

_MEANINGS = {
    "total": "the parcels of all runners",
    "own": "this runner's parcels without empty seats",
    "seats": "this runner's seats",
}


class Crew(Scope, Generic[V]):
    """A crew as one of its runners sees it: by default runner 0 of two, with parcels 1, 3 and 5 of seven in four seats."""

    noun = "crew"

    def __init__(self, way: V, runner: int = 0, runners: int = 2, total: int = 7) -> None:
        """Share the parcels out, and bind their numbers."""
        owners = [way.owner(parcel, runners) for parcel in range(total)]
        self.way, self.runner, self.runners = way, runner, runners
        self.mine = [parcel for parcel, owner in enumerate(owners) if owner == runner]
        self.seats = max(map(owners.count, range(runners)), default=0)
        super().__init__()
        for name, size in {"total": total, "own": len(self.mine), "seats": self.seats}.items():
            self.dims.bind(name, size, f"crew ({way.name}, runner {runner} of {runners})")
        self.numbers: Ten[All[InOrder], Plain, I64, Contiguous, Total] = declare(
            torch.arange(total) * 10, All[InOrder], Plain, self, "crew.numbers"
        )
        rows: Any = Mine
        self.own_rows: Ten[Mine[V], Plain, I64, Contiguous, Own] = declare(
            torch.tensor(self.mine, dtype=torch.int64), rows[type(way)], Plain, self, "crew.own_rows"
        )

    @property
    def where(self) -> str:
        """Runner, layer and way."""
        layer = "" if self.layer is None else f", layer {self.layer}"
        return f"runner={self.runner} of {self.runners}{layer}, {self.way.name}"

    @property
    def device(self) -> torch.device:
        """Where the parcels are."""
        return torch.device("cpu")

    @property
    def signature(self) -> object:
        """One object for all crews that agree."""
        facts = (type(self.way), self.way.name, self.runner, self.runners, self.dims.value("total"))
        return _SIGNATURES.setdefault(facts, object())

    @property
    def fingerprint(self) -> str:
        """What all runners see alike."""
        return f"{self.way.name} runners={self.runners} total={self.dims.value('total')}"

    @property
    def type_marks(self) -> tuple[object, ...]:
        """The way, which `Crew[V]` calls `V`."""
        return (type(self.way),)

    def variant_of(self, rows: object) -> str:
        """Return the way's name for rows that depend on it."""
        return self.way.name if "Mine[" in mark_text(rows) or "ByRunner[" in mark_text(rows) else ""

    def meaning_of(self, size: int) -> str:
        """Return which parcels so many are."""
        return next((f"{size} is {name}, {text}" for name, text in _MEANINGS.items() if self.dims.value(name) == size), "")

    def check_itself(self, stage: str, location: str) -> None:
        """Refuse a crew whose parcels were changed."""
        if self.own_rows.tolist() != self.mine:
            text = f"{stage}: own_rows are {self.own_rows.tolist()}, runner {self.runner} has {self.mine}"
            raise ContractError(text, code="DSA602", facts=[("contract", location)])

    def at_layer(self, layer: int | None) -> "Crew[V]":
        """Return the crew as the calls of one layer see it."""
        view = copy(self)
        view.layer = layer
        return view


ROWS, WIDTH = 3, 2
"""This runner's parcels in `crew_of`, and the width of the toy rows."""


@contract(returns=("turned",), advice=(("DSA107", "turn once"),))
def turn(
    x: Ten[Mine[V], Cold, BF16, UnitLast, N, Width],
    positions: Ten[Mine[V], Plain, I64, Contiguous, N],
    scale: float,
    crew: Crew[V],
) -> Ten[Mine[V], Warm, BF16, Contiguous, N, Width]:
    """Parcels are scaled, and called warm."""
    raise NotImplementedError


def bare_turn(
    x: Ten[Mine[V], Cold, BF16, UnitLast, N, Width],
    positions: Ten[Mine[V], Plain, I64, Contiguous, N],
    scale: float,
    crew: Crew[V],
) -> Ten[Mine[V], Warm, BF16, Contiguous, N, Width]:
    """Scale the parcels."""
    return brand(x * scale)


@contract(returns=("mean",))
def average(
    x: Ten[All[InOrder], Plain, BF16, Contiguous, Total, Width], crew: Crew[V]
) -> Ten[All[InOrder], Plain, BF16, Contiguous, Total, Width]:
    """Parcels of all runners stay where they are."""
    raise NotImplementedError


def bare_average(
    x: Ten[All[InOrder], Plain, BF16, Contiguous, Total, Width], crew: Crew[V]
) -> Ten[All[InOrder], Plain, BF16, Contiguous, Total, Width]:
    """Copy the parcels."""
    return brand(x.clone())


def rows_are_own() -> Invariant:
    """State that rows are those of the crew, read off their values."""

    def check(call: Call) -> str | None:
        crew = call.scope
        assert isinstance(crew, Crew)
        for at, (got, want) in enumerate(zip(call.tensor("rows").tolist(), crew.mine, strict=False)):
            if got != want:
                return f"rows[{at}] is {got}, own row {at} is {want}"
        return None

    return Invariant("rows_are_own", "DSA106", "rows", "rows is crew.own_rows", True, check, shows_rows=True)


@contract(returns=("picked",), requires=(rows_are_own(),))
def pick(
    numbers: Ten[All[InOrder], Plain, I64, Contiguous, Total],
    rows: Ten[Mine[V], Plain, I64, Contiguous, N],
    crew: Crew[V],
) -> Ten[Mine[V], Plain, I64, Contiguous, N]:
    """The numbers of this runner's parcels."""
    raise NotImplementedError


@stage(pick, mode=Mode.DEVELOPMENT)
def picked(
    numbers: Ten[All[InOrder], Plain, I64, Contiguous, Total],
    rows: Ten[Mine[V], Plain, I64, Contiguous, N],
    crew: Crew[V],
) -> Ten[Mine[V], Plain, I64, Contiguous, N]:
    """Index the numbers."""
    return brand(numbers[rows])


@contract(returns=("boxed",))
def put_in_box(
    low: Ten[Mine[V], Plain, BF16, UnitLast, N, Width],
    high: Ten[Mine[V], T, BF16, UnitLast, N, Depth],
    box: Box[B, BF16],
    crew: Crew[V],
) -> Ten[Mine[V], Boxed[B, T], U8, Contiguous, N, BoxBytes]:
    """Two parts of each parcel stand in one row of bytes."""
    raise NotImplementedError


@stage(put_in_box, mode=Mode.DEVELOPMENT)
def boxed(
    low: Ten[Mine[V], Plain, BF16, UnitLast, N, Width],
    high: Ten[Mine[V], T, BF16, UnitLast, N, Depth],
    box: Box[B, BF16],
    crew: Crew[V],
) -> Ten[Mine[V], Boxed[B, T], U8, Contiguous, N, BoxBytes]:
    """Join the parts."""
    return brand(torch.cat([low, high], dim=1).view(torch.uint8))


@contract()
def put_on_shelf(
    shelf: Ten[Shelf, Boxed[B, T], U8, Contiguous, Height, BoxBytes],
    boxes: Ten[R, Boxed[B, T], U8, UnitLast, N, BoxBytes],
    crew: Crew[V],
) -> None:
    """Boxes are written to the first places of a shelf."""


@stage(put_on_shelf, mode=Mode.DEVELOPMENT)
def shelved(
    shelf: Ten[Shelf, Boxed[B, T], U8, Contiguous, Height, BoxBytes],
    boxes: Ten[R, Boxed[B, T], U8, UnitLast, N, BoxBytes],
    crew: Crew[V],
) -> None:
    """Copy the boxes."""
    shelf[: boxes.shape[0]] = boxes


@contract(returns=("gathered",))
def gather(
    boxes: Ten[Mine[V], Boxed[B, T], U8, Contiguous, N, BoxBytes],
    box: Box[B, D],
    crew: Crew[V],
    group: Comm,
) -> Ten[All[ByRunner[V]], Boxed[B, T], U8, Contiguous, Height, BoxBytes]:
    """Boxes of all runners stand runner by runner."""
    raise NotImplementedError


@stage(gather, mode=Mode.DEVELOPMENT)
def gathered(
    boxes: Ten[Mine[V], Boxed[B, T], U8, Contiguous, N, BoxBytes],
    box: Box[B, D],
    crew: Crew[V],
    group: Comm,
) -> Ten[All[ByRunner[V]], Boxed[B, T], U8, Contiguous, Height, BoxBytes]:
    """Ask the group."""
    return brand(group.all_gather(boxes))


TURN = contract_of(turn).location
AVERAGE = contract_of(average).location


def checked_turn(mode: Mode = Mode.DEVELOPMENT) -> Callable[..., Any]:
    """The toy stage with a call cache of its own."""
    return stage(turn, mode=mode)(bare_turn)


def turn_with(body: Callable[..., Any], mode: Mode = Mode.DEVELOPMENT) -> Callable[..., Any]:
    """The toy stage with another body."""

    def other(x: Any, positions: Any, scale: Any, crew: Any) -> Any:
        return body(x, positions, scale, crew)

    return stage(turn, mode=mode)(other)


def checked_average() -> Callable[..., Any]:
    """The stage that keeps parcels where they are."""
    return stage(average, mode=Mode.DEVELOPMENT)(bare_average)


def crew_of(runner: int = 0, way: Way | None = None, runners: int = 2, total: int = 7) -> Crew[Any]:
    """Runner 0 has own 3, seats 4, total 7: three counts that differ."""
    return Crew(way or Turns(), runner, runners, total)


def cache_of(function: Callable[..., Any]) -> CallCache:
    """The call cache of a checked stage."""
    found: Any = function
    return next(cell.cell_contents for cell in found.__closure__ if isinstance(cell.cell_contents, _Checked)).checker.cache


def rows_of(count: int = ROWS, width: int = WIDTH) -> Tensor:
    """Rows of ones."""
    return torch.ones(count, width, dtype=torch.bfloat16)


def cold(tensor: Tensor, crew: Crew[V]) -> Any:
    """This runner's cold parcels."""
    return mine(tensor, Cold, crew)


def mine(tensor: Tensor, state: object, crew: Crew[V]) -> Any:
    """This runner's parcels as some stage before would have handed them on."""
    return declare(tensor, Mine[V], state, crew, "test")


def all_rows(tensor: Tensor, order: object, state: object, crew: Crew[Any]) -> Any:
    """Parcels of all runners as some stage before would have handed them on."""
    rows: Any = All
    return declare(tensor, rows[order], state, crew, "test")


def args_of(crew: Crew[Any], **changes: Any) -> tuple[Any, ...]:
    """Legal arguments of `turn`, branded, with some of them changed."""
    positions = mine(crew.numbers[crew.own_rows], Plain, crew)
    args = {"x": cold(rows_of(len(crew.mine)), crew), "positions": positions, "scale": 2.0, "crew": crew}
    return tuple((args | changes).values())
