"""The semantic diff of what all contracts are written in: type variables, row formats, codes."""

import pytest

from dsa_cp.tools.review.contract_facts import ContractFacts, PartFacts, contract_facts
from dsa_cp.tools.review.diff import compare


def replaced(**parts: object) -> ContractFacts:
    """The facts with one of their parts changed."""
    return contract_facts().model_copy(update=parts)


def test_a_type_variable_that_stands_for_less_breaks_who_used_it() -> None:
    facts = contract_facts()
    fewer = replaced(type_variables={**facts.type_variables, "N": "nnz_local"})
    assert [change.line for change in compare(facts, fewer)] == [
        (
            "breaking   type variable N: stands for nnz_local or nnz_padded or nnz_shard -> nnz_local;"
            " for callers (compatible for implementations, kernel authors)"
        )
    ]
    assert [change.line for change in compare(fewer, facts)] == [
        (
            "breaking   type variable N: stands for nnz_local -> nnz_local or nnz_padded or nnz_shard;"
            " for implementations, kernel authors (compatible for callers)"
        )
    ]


def test_other_bytes_of_a_row_format_break_kernels_and_who_holds_rows() -> None:
    facts = contract_facts()
    parts = (
        PartFacts(name="k_index", dtype="e4m3", count=128, offset=0),
        PartFacts(name="scales", dtype="f32", count=2, offset=128),
    )
    other = replaced(row_formats={**facts.row_formats, "index_fp8": parts})
    assert [change.line for change in compare(facts, other)] == [
        (
            "breaking   row format index_fp8: is k_index 128 e4m3 at byte 0 + scales 1 f32 at byte 128"
            " -> k_index 128 e4m3 at byte 0 + scales 2 f32 at byte 128; for callers, kernel authors"
        )
    ]


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ({"DSA102": "a"}, {"DSA102": "b"}, "compatible code DSA102: means 'a' -> 'b'; for readers of errors"),
        ({"DSA102": "a"}, {}, "breaking   code DSA102: removed: a; for readers of errors"),
        ({}, {"DSA102": "a"}, "compatible code DSA102: added: a; for readers of errors"),
    ],
)
def test_codes_are_diffed(before: dict[str, str], after: dict[str, str], line: str) -> None:
    assert [change.line for change in compare(replaced(codes=before), replaced(codes=after))] == [line]
