"""Names of dims."""

import pytest

from dsa_contracts.core.marks import Dim, dim_name
from dsa_contracts.dsa import dims
from dsa_contracts.dsa.dims import IndexTopk, KvLoraRank, Nnz, NnzLocal, QkRopeHeadDim


@pytest.mark.parametrize(
    ("dim", "name"),
    [
        (Nnz, "nnz"),
        (NnzLocal, "nnz_local"),
        (KvLoraRank, "kv_lora_rank"),
        (QkRopeHeadDim, "qk_rope_head_dim"),
        (IndexTopk, "index_topk"),
    ],
)
def test_the_written_name_of_a_dim_is_its_class_name_in_snake_case(dim: type[Dim], name: str) -> None:
    assert dim_name(dim) == name


def test_no_two_dims_have_the_same_written_name() -> None:
    every = [
        value for value in vars(dims).values() if isinstance(value, type) and issubclass(value, Dim) and value is not Dim
    ]
    assert len({dim_name(dim) for dim in every}) == len(every)
    assert all(dim.__doc__ for dim in every)
