"""The semantic diff: one edit of a stub, and the lines that it makes."""

from dsa_cp.tools.review.contract_facts import contract_facts
from dsa_cp.tools.review.diff import compare
from tests.support.edited_stubs import changed, changes_of, lines_of

BOTH = "callers, implementations, kernel authors"


def test_contracts_do_not_differ_from_themselves() -> None:
    assert compare(contract_facts(), contract_facts()) == []


def test_another_dtype_is_breaking() -> None:
    edit = ("k_rope: KRope[Local[L], Raw, N]", "k_rope: Ten[Local[L], Raw, F32, UnitLast, N, QkRopeHeadDim]")
    assert lines_of("rope_quantize", edit) == [f"breaking   rope_quantize.k_rope: dtype bf16 -> f32; for {BOTH}"]


def test_another_dim_name_is_breaking() -> None:
    edit = ("k_rope: KRope[Local[L], Raw, N]", "k_rope: Ten[Local[L], Raw, BF16, UnitLast, N, KvLoraRank]")
    assert lines_of("rope_quantize", edit) == [
        f"breaking   rope_quantize.k_rope: dim 1 qk_rope_head_dim -> kv_lora_rank; for {BOTH}"
    ]


def test_another_order_is_breaking() -> None:
    edit = ("gathered: PackedRows[Global[RankMajor[L]]", "gathered: PackedRows[Global[Sequence]")
    assert lines_of("restore_order", edit) == [
        f"breaking   restore_order.gathered: rows and order Global[RankMajor[L]] -> Global[Sequence]; for {BOTH}"
    ]


def test_tighter_strides_of_a_parameter_break_callers_alone() -> None:
    dense = "Ten[Local[L], Rotated, BF16, Contiguous, N, NumLocalHeads, QkRopeHeadDim]"
    edit = ("q_rope: QRope[L, Rotated, N]", f"q_rope: {dense}")
    assert lines_of("merge_q", edit) == [
        (
            "breaking   merge_q.q_rope: strides UnitLast -> Contiguous; for callers"
            " (compatible for implementations, kernel authors)"
        )
    ]


def test_looser_strides_of_a_parameter_break_the_kernels_that_read_it() -> None:
    looser = "Ten[Global[Sequence], KeyCounts, I32, UnitLast, Nnz]"
    edit = ("causal_lens: CausalLens[Global[Sequence], Nnz]", f"causal_lens: {looser}")
    assert lines_of("reorder_causal_lens", edit) == [
        (
            "breaking   reorder_causal_lens.causal_lens: strides Contiguous -> UnitLast;"
            " for implementations, kernel authors (compatible for callers)"
        )
    ]


def test_looser_strides_of_a_result_break_callers() -> None:
    edit = ("-> Query[L, BF16, N]", "-> Ten[Local[L], Rotated, BF16, UnitLast, N, NumLocalHeads, QkHeadDim]")
    assert lines_of("merge_q", edit) == [
        "breaking   merge_q.q: strides Contiguous -> UnitLast; for callers (compatible for implementations, kernel authors)"
    ]


def test_strides_of_another_kind_break_all() -> None:
    edit = ("-> Query[L, BF16, N]", "-> Ten[Local[L], Rotated, BF16, C, N, NumLocalHeads, QkHeadDim]")
    assert lines_of("merge_q", edit) == [f"breaking   merge_q.q: strides Contiguous -> C; for {BOTH}"]


def test_another_rope_state_is_breaking() -> None:
    edit = ("q_rope: QRope[L, Rotated, N]", "q_rope: QRope[L, Raw, N]")
    assert lines_of("merge_q", edit) == [f"breaking   merge_q.q_rope: state Rotated -> Raw; for {BOTH}"]


def test_a_parameter_that_is_renamed_is_one_line() -> None:
    edits = (("    q_rope: QRope", "    q_pe: QRope"), ('"q_nope", "q_rope"),),', '"q_nope", "q_pe"),),'))
    flow = ('("q_rope", "q")', '("q_pe", "q")')
    assert lines_of("merge_q", *edits, flow)[0] == (
        "breaking   merge_q.q_rope: parameter renamed to q_pe; for callers, implementations"
    )


def test_parameters_that_change_places_are_breaking() -> None:
    first, second = "    q_nope: QNope[L, N],\n", "    q_rope: QRope[L, Rotated, N],\n"
    assert lines_of("merge_q", (first + second, second + first)) == [
        f"breaking   merge_q: order of parameters q_nope, q_rope, batch -> q_rope, q_nope, batch; for {BOTH}"
    ]


def test_a_parameter_more_or_less_is_breaking() -> None:
    added = ("    batch: CpBatch[L],\n", "    batch: CpBatch[L],\n    scale: float,\n")
    assert lines_of("merge_q", added) == [f"breaking   merge_q.scale: parameter added; for {BOTH}"]
    back = compare(changed("merge_q", added), contract_facts())
    assert [change.line for change in back] == [f"breaking   merge_q.scale: parameter removed; for {BOTH}"]


def test_none_that_becomes_legal_breaks_who_must_serve_it() -> None:
    edit = ("q_nope: QNope[L, N],", "q_nope: QNope[L, N] | None,")
    (change,) = changes_of("merge_q", edit)
    assert (change.what, change.breaks, change.fits) == (
        "None is legal now",
        ("implementations", "kernel authors"),
        ("callers",),
    )
    (back,) = compare(changed("merge_q", edit), contract_facts())
    assert (back.what, back.breaks, back.fits) == (
        "None is not legal any more",
        ("callers",),
        ("implementations", "kernel authors"),
    )


def test_an_invariant_less_before_the_call_breaks_the_implementations_that_relied_on_it() -> None:
    edit = ("requires=(rows_are_this_ranks(),),", "requires=(),")
    assert lines_of("reorder_causal_lens", edit) == [
        (
            "breaking   reorder_causal_lens.rows: invariant rows_are_this_ranks no longer holds before the call;"
            " for implementations (compatible for callers)"
        )
    ]
    (back,) = compare(changed("reorder_causal_lens", edit), contract_facts())
    assert back.line == (
        "breaking   reorder_causal_lens.rows: invariant rows_are_this_ranks (DSA119) must hold before the call:"
        " rows is batch.local_rows or batch.padded_rows; for callers (compatible for implementations)"
    )


def test_another_code_of_an_invariant_breaks_readers_of_errors() -> None:
    edit = ('"local_causal_lens", "causal_lens", "DSA117"', '"local_causal_lens", "causal_lens", "DSA115"')
    assert lines_of("reorder_causal_lens", edit) == [
        (
            "breaking   reorder_causal_lens.local_causal_lens: invariant causal_lens_match_rows: code DSA117 -> DSA115;"
            " for readers of errors"
        )
    ]


def test_codes_and_advice_concern_readers_of_errors_alone() -> None:
    less = ("StageOutputError: DSA117.", "StageOutputError: none.")
    assert lines_of("reorder_causal_lens", less) == [
        "breaking   reorder_causal_lens: StageOutputError DSA117 is no longer listed; for readers of errors"
    ]
    more = ("StageOutputError: DSA117.", "StageOutputError: DSA117, DSA120.")
    assert lines_of("reorder_causal_lens", more) == [
        "compatible reorder_causal_lens: StageOutputError DSA120 is listed now; for readers of errors"
    ]
    said = ("never subtract or divide in local space", "never in local space")
    assert lines_of("reorder_causal_lens", said) == [
        "compatible reorder_causal_lens: advice for DSA117 is another; for readers of errors"
    ]


def test_sources_and_flow_are_followed_by_planners() -> None:
    fewer = ('("batch.local_rows", "batch.padded_rows", "batch.shard_rows")', '("batch.local_rows",)')
    assert lines_of("reorder_causal_lens", fewer) == [
        (
            "breaking   reorder_causal_lens.rows: may come from batch.local_rows or batch.padded_rows or batch.shard_rows"
            " -> batch.local_rows; for callers (compatible for implementations)"
        )
    ]
    more = ('("causal_lens", ("batch.causal_lens",))', '("causal_lens", ("batch.causal_lens", "batch.positions"))')
    assert lines_of("reorder_causal_lens", more) == [
        (
            "compatible reorder_causal_lens.causal_lens: may come from batch.causal_lens"
            " -> batch.causal_lens or batch.positions; for callers"
        )
    ]
    without = ('    flow=(("causal_lens", "local_causal_lens"),),\n', "")
    assert lines_of("reorder_causal_lens", without) == [
        (
            "breaking   reorder_causal_lens.causal_lens: its rows no longer flow into local_causal_lens;"
            " for callers, implementations"
        )
    ]


def test_stages_are_added_removed_and_renamed() -> None:
    facts = contract_facts()
    stages = dict(facts.stages)
    merged = stages.pop("merge_q")
    less = facts.model_copy(update={"stages": stages})
    assert [change.line for change in compare(facts, less)] == [f"breaking   merge_q: stage removed; for {BOTH}"]
    assert [change.line for change in compare(less, facts)] == [
        "compatible merge_q: stage added; for callers, implementations"
    ]
    renamed = facts.model_copy(update={"stages": {**stages, "join_q": merged.model_copy(update={"name": "join_q"})}})
    assert [change.line for change in compare(facts, renamed)] == [
        f"breaking   merge_q: stage renamed to join_q; for {BOTH}, readers of errors"
    ]


def test_breaking_changes_come_first() -> None:
    said = ("never subtract or divide in local space", "never in local space")
    edit = ("rows: RowIndex[Local[L], N]", "rows: Ten[Local[L], RowIds, I32, Contiguous, N]")
    assert [change.severity for change in changes_of("reorder_causal_lens", said, edit)] == ["breaking", "compatible"]
