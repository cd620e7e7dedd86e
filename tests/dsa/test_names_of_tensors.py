"""The aliases: each says which parameters it takes, no two say one thing, and no integers are called plain."""

import ast
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.core.marks import I32, I64, Plain
from dsa_contracts.core.tensors import spec_of
from dsa_contracts.dsa import aliases
from dsa_contracts.dsa.dims import NnzGathered, NnzLocal
from dsa_contracts.dsa.states import Fp8Row, Local, RankMajor, Rotated
from dsa_cp.layouts import Zigzag

ROOT = Path(aliases.__file__).resolve().parents[2]


def said() -> dict[str, str]:
    """The text under each alias."""
    body = ast.parse(Path(aliases.__file__).read_text(encoding="utf-8")).body
    return {
        first.target.id: str(text.value.value)
        for first, text in pairwise(body)
        if isinstance(first, ast.AnnAssign)
        and isinstance(first.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


SAID = said()


def alias(name: str) -> Any:
    return getattr(aliases, name)


def test_every_alias_has_a_text() -> None:
    assert list(SAID) == [name for name, found in vars(aliases).items() if spec_of(found) is not None]
    assert len(SAID) >= 25


@pytest.mark.parametrize("name", SAID)
def test_an_alias_says_which_parameters_it_takes_in_their_order(name: str) -> None:
    with pytest.raises(ContractDefinitionError) as error:
        alias(name)[tuple(range(40))] if "*Ds" not in SAID[name] else alias(name)[()]
    takes = error.value.headline.partition(" takes the parameters ")[2].partition(", got ")[0]
    text = SAID[name].partition(": ")[0].strip("`") if SAID[name].startswith("`[") else "[]"
    assert takes == text


def test_no_two_aliases_stand_for_one_tensor() -> None:
    assert len({spec_of(alias(name)) for name in SAID}) == len(SAID)


def test_integers_say_what_they_count_or_index() -> None:
    found = {}
    for name in SAID:
        spec = spec_of(alias(name))
        assert spec is not None
        if spec.dtype in (I32, I64):
            assert isinstance(spec.state, type)
            assert issubclass(spec.state, Plain)
            found[name] = spec.state.__name__
    assert found == {
        "TokenPositions": "Positions",
        "CausalLens": "KeyCounts",
        "RequestOfRow": "RequestIds",
        "RowIndex": "RowIds",
        "SlotMapping": "TokenSlots",
        "PageTable": "PageIds",
        "TopkIndices": "KeyIds",
    }


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (alias("KvCache")[Fp8Row], "u8[num_pages page_size row_bytes] Contiguous, Pool, Packed[Fp8Row, Rotated]"),
        (
            alias("KvRows")[Local[Zigzag], Fp8Row, Rotated, NnzLocal],
            "u8[nnz_local row_bytes] UnitLast, Local[Zigzag], Packed[Fp8Row, Rotated]",
        ),
        (
            alias("SlotMapping")[RankMajor[Zigzag], NnzGathered],
            "i64[nnz_gathered] Contiguous, Global[RankMajor[Zigzag]], TokenSlots",
        ),
        (alias("PageTable"), "i32[num_requests max_pages] Contiguous, PerRequest, PageIds"),
    ],
)
def test_an_alias_is_what_its_text_says(hint: Any, text: str) -> None:
    spec = spec_of(hint)
    assert spec is not None
    assert spec.describe() == text


def test_contracts_stages_and_kernels_write_no_tensor_out() -> None:
    folders = [ROOT / "dsa_contracts" / "stages", ROOT / "src" / "dsa_cp" / "stages", ROOT / "src" / "dsa_cp" / "kernels"]
    files = [file for folder in folders for file in sorted(folder.glob("*.py"))]
    assert len(files) > 30
    assert [file.name for file in files if "Ten[" in file.read_text(encoding="utf-8")] == []
