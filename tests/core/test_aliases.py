"""An annotation with type variables as an alias: what its parameters put in the place of which variable."""

from typing import Any, Generic, TypeVar, TypeVarTuple, get_args

import pytest

from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.core.marks import BF16, F32, Contiguous, Dim, DType, Plain, Rows, State
from dsa_contracts.core.tensors import Ten, spec_of

K = TypeVar("K")
S = TypeVar("S", bound=State)
D = TypeVar("D", bound=DType)
N = TypeVar("N", bound=Dim)
Ds = TypeVarTuple("Ds")
OPEN: Any = get_args(tuple[*Ds])[0]  # type: ignore[valid-type]
ANNOTATION: Any = Ten


class Owner:
    """Whose rows."""


class Mine(Owner):
    """This rank's."""


class Of(Rows, Generic[K]):
    """Rows of somebody."""


class Both(State, Generic[K, S]):
    """A state of two parts."""


class Tokens(Dim):
    """Tokens."""


class Heads(Dim):
    """Heads."""


class Girth(Dim):
    """Girth."""


OF: Any = Of
BOTH: Any = Both
HIDDEN = ANNOTATION[OF[K], BOTH[K, S], D, Contiguous, N, Girth]
CUT = ANNOTATION[OF[K], Plain, BF16, Contiguous, N, OPEN]
CLOSED = ANNOTATION[OF[Mine], Plain, BF16, Contiguous, Tokens]


def described(hint: object) -> str:
    spec = spec_of(hint)
    assert spec is not None
    return spec.describe()


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (HIDDEN, "D[N girth] Contiguous, Of[K], Both[K, S]"),
        (HIDDEN[Mine, Plain, BF16, Tokens], "bf16[tokens girth] Contiguous, Of[Mine], Both[Mine, Plain]"),
        (HIDDEN[K, Plain, F32, N], "f32[N girth] Contiguous, Of[K], Both[K, Plain]"),
        (
            HIDDEN[Mine, BOTH[K, S], D, Tokens][Owner, Plain, F32],
            "f32[tokens girth] Contiguous, Of[Mine], Both[Mine, Both[Owner, Plain]]",
        ),
        (CUT[Mine, Tokens, Heads, Girth], "bf16[tokens heads girth] Contiguous, Of[Mine], Plain"),
        (CUT[Mine, Tokens], "bf16[tokens] Contiguous, Of[Mine], Plain"),
        (CUT[K, N, OPEN], "bf16[N *Ds] Contiguous, Of[K], Plain"),
        (CUT[K, N, OPEN][Mine, Tokens, Girth], "bf16[tokens girth] Contiguous, Of[Mine], Plain"),
    ],
)
def test_parameters_stand_for_the_variables_in_the_order_of_their_first_appearance(hint: object, text: str) -> None:
    assert described(hint) == text


def test_an_alias_with_its_parameters_is_the_class_of_the_annotation_written_out() -> None:
    written = ANNOTATION[OF[Mine], BOTH[Mine, Plain], BF16, Contiguous, Tokens, Girth]
    assert HIDDEN[Mine, Plain, BF16, Tokens] is written
    assert HIDDEN[Mine, Plain, F32, Tokens] is not written
    assert described(HIDDEN) == "D[N girth] Contiguous, Of[K], Both[K, S]"


@pytest.mark.parametrize(
    ("alias", "params", "message"),
    [
        (
            HIDDEN,
            (Mine, Plain, BF16),
            "D[N girth] Contiguous, Of[K], Both[K, S] takes the parameters [K, S, D, N], got [Mine, Plain, BF16]",
        ),
        (
            HIDDEN,
            (Mine, Plain, F32, Tokens, N),
            "D[N girth] Contiguous, Of[K], Both[K, S] takes the parameters [K, S, D, N], got [Mine, Plain, F32, Tokens, N]",
        ),
        (CUT, (Mine,), "bf16[N *Ds] Contiguous, Of[K], Plain takes the parameters [K, N, *Ds], got [Mine]"),
        (CLOSED, (Tokens,), "bf16[tokens] Contiguous, Of[Mine], Plain takes the parameters [], got [Tokens]"),
        (HIDDEN, (Mine, Plain, Tokens, BF16), "Tokens does not name the dtype of a tensor"),
        (CUT, (Mine, BF16), "BF16 does not name a dim"),
    ],
)
def test_parameters_that_do_not_fit_are_refused_where_they_are_written(alias: Any, params: Any, message: str) -> None:
    with pytest.raises(ContractDefinitionError) as error:
        alias[params]
    assert (error.value.code, error.value.headline) == ("DSA001", message)


def test_one_parameter_needs_no_tuple() -> None:
    assert described(ANNOTATION[OF[Mine], Plain, BF16, Contiguous, N][Tokens]) == "bf16[tokens] Contiguous, Of[Mine], Plain"
