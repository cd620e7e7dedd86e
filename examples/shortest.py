from torch import ones

from dsa_contracts import ContractError, Ten, brand, contract, declare_lasting, stage
from dsa_contracts.core.marks import F32, Contiguous, Dim, Plain, Rows, State


class Tokens(Dim): ...


class Mine(Rows): ...


class Scaled(State): ...


@contract(returns=("scaled",))
def scale(x: Ten[Mine, Plain, F32, Contiguous, Tokens], by: float) -> Ten[Mine, Scaled, F32, Contiguous, Tokens]:
    raise NotImplementedError


@stage(scale)
def scale_once(x: Ten[Mine, Plain, F32, Contiguous, Tokens], by: float) -> Ten[Mine, Scaled, F32, Contiguous, Tokens]:
    return brand(x * by)


scaled = scale_once(declare_lasting(ones(3), Mine, Plain, "input"), 2.0)
try:
    scale_once(scaled, 2.0)  # type: ignore[arg-type]
except ContractError as error:
    print(error)
