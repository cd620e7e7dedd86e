"""A layout that is wrong is refused by `prove`, with the smallest batch found; one that is right passes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.layout import Layout, SegmentTable
from dsa_cp.cli import main
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag, register_layout, written_names
from dsa_cp.tools.prove.obligations import ROWS_HAVE_ONE_WRITER
from dsa_cp.tools.prove.proof_results import Outcome, Result
from dsa_cp.tools.prove.prover import ProofQuestion, answer, prove
from dsa_cp.tools.prove.report import counterexample_text, smallest_of_each
from tests.support import broken_layouts as broken


class Case(NamedTuple):
    """A broken layout, and the lines of its refutation: what is false, where, what is said there and what is right."""

    layout: Layout
    headline: str
    at: str
    says: str
    right: str


def lies(layout: Layout, at: str, says: str, right: str, *, requests: int = 1, ranks: int = 2) -> Case:
    """A layout whose code does not do what its formulas say."""
    count = f"{requests} request{'s'[: requests > 1]}"
    return Case(layout, f"code_fits_formulas is false: {layout.name}, {ranks} ranks, {count}", at, says, right)


ORDER = "rows in local order: "

CASES = [
    lies(broken.DropsTheLastToken(), "rank 0", ORDER + "no rows", "request 0: 0"),
    lies(broken.StopIsTheLastToken(), "rank 0", ORDER + "no rows", "request 0: 0"),
    lies(broken.TailBeforeHead(), "rank 1", ORDER + "request 0: 2 | request 0: 1", "request 0: 1 2"),
    lies(
        broken.RequestByRequest(),
        "rank 1",
        ORDER + "request 0: 1 2 | request 1: 1",
        "request 0: 1 | request 1: 1 | request 0: 2",
        requests=2,
    ),
    lies(broken.RanksReversed(), "rank 0", ORDER + "no rows", "request 0: 0"),
    lies(broken.TablesForTwoRanks(), "the layout", "segment tables, one a rank: 2", "3", ranks=3),
    lies(
        broken.EmptyRankCrashes(),
        "the layout",
        "its segments: raises IndexError: list index out of range",
        "2 segment tables",
    ),
    lies(broken.RoundsUpToChunks(), "rank 0", ORDER + "request 0: 0 | request 0: _", "request 0: 0"),
    lies(broken.OtherChunksThanItsFormulas(), "rank 0", ORDER + "request 0: 0 1", "request 0: 0 1 | request 0: 4"),
    lies(broken.DoublesARow(), "rank 1", ORDER + "request 0: 2 3 | request 0: 0", "request 0: 2 3"),
    lies(
        broken.HalfInt(),
        "the layout",
        "its index tensors: raises BatchError: HalfInt gives rank 0 a malformed segment table",
        "those of its formulas",
    ),
    lies(broken.BlockIgnored(), "rank 0", ORDER + "request 0: 0", "request 0: 0 1"),
    lies(broken.RestartsWithEachRequest(), "rank 0", ORDER + "request 0: 0 | request 1: 0", "request 0: 0", requests=2),
    lies(broken.DecodesOnOneRank(), "rank 0", ORDER + "request 0: 0 | request 1: 0", "request 0: 0", requests=2),
    Case(
        broken.LosesTheRemainder(),
        "rows_have_one_writer is false: LosesTheRemainder, 2 ranks, 1 request",
        "request 0, token 0",
        "copies of the token that are written: 0",
        "1",
    ),
    Case(
        broken.LosesShortRequests(),
        "rows_have_one_writer is false: LosesShortRequests, 2 ranks, 1 request",
        "request 0, token 0",
        "copies of the token that are written: 0",
        "1",
    ),
    Case(
        broken.Overlaps(),
        "rows_have_one_writer is false: Overlaps, 2 ranks, 1 request",
        "request 0, token 0",
        "copies of the token that are written: 2",
        "1",
    ),
    Case(
        broken.ForTwoRanks(),
        "rows_have_one_writer is false: ForTwoRanks, 3 ranks, 1 request",
        "request 0, token 1",
        "copies of the token that are written: 2",
        "1",
    ),
    Case(
        broken.RunsPastTheEnd(),
        "rows_have_one_writer is false: RunsPastTheEnd, 2 ranks, 1 request",
        "rank 1, chunk 0 of request 0",
        "token: 1",
        "below 1",
    ),
    Case(
        broken.AllCopiesWrite(),
        "rows_have_one_writer is false: AllCopiesWrite, 2 ranks, 1 request",
        "request 0, token 0",
        "copies of the token that are written: 2",
        "1",
    ),
    Case(
        broken.TailsRise(),
        "chunks_are_mirrored is false: TailsRise, 2 ranks, 1 request",
        "request 0",
        "first token of chunk 2: 3",
        "2",
    ),
]


def results_of(layout: Layout) -> list[Result]:
    return list(prove([layout], [2, 3], (1, 2), 60.0))


@pytest.fixture
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(written_names, "_entries", dict(written_names._entries))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.layout.name)
def test_a_broken_layout_is_refuted_with_the_smallest_batch_found(case: Case) -> None:
    found = smallest_of_each(results_of(case.layout))[0]
    assert found.counterexample is not None
    lines = counterexample_text(found, case.layout, found.counterexample).splitlines()
    facts = dict(line.strip().split(None, 1) for line in lines[1:])
    assert (lines[0], facts["at"], facts["says"], facts["right"]) == case[1:]


@pytest.mark.parametrize("case", CASES[:14], ids=lambda case: case.layout.name)
def test_of_a_layout_that_does_not_run_its_formulas_nothing_is_proven(case: Case) -> None:
    assert {result.outcome for result in results_of(case.layout)} <= {Outcome.REFUTED, Outcome.MATCHED}


@pytest.mark.parametrize(
    "layout",
    [broken.Even(), Zigzag(), Interleave(), Interleave(3), VllmZigzag(), VllmReplicated()],
    ids=lambda layout: layout.name,
)
def test_a_right_layout_passes(layout: Layout) -> None:
    assert {result.outcome for result in results_of(layout)} == {Outcome.MATCHED, Outcome.PROVEN}


BOGUS_TEXT = """\
code_fits_formulas is false: DropsTheLastToken, 2 ranks, 1 request
  lens      extend [1], prefix [0], padded [1], row_alignment 1
  at        rank 0
  says      rows in local order: no rows
  right     request 0: 0
"""


@pytest.mark.usefixtures("_own_registry")
def test_the_command_refuses_a_layout_that_drops_tokens_under_the_formulas_of_zigzag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    register_layout("bogus", broken.DropsTheLastToken)
    assert main(["prove", "--layout", "bogus"]) == 1
    out = capsys.readouterr().out
    assert "   proven" not in out
    assert out.endswith("\n\n" + BOGUS_TEXT)


class SegmentsAlone(Layout):
    """A layout without formulas: zigzag's segments."""

    @property
    def name(self) -> str:
        return "segments_alone"

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> tuple[SegmentTable, ...]:
        return Zigzag().segment_tables(padded_lens, cp_size)


@pytest.mark.usefixtures("_own_registry")
def test_a_layout_without_formulas_is_refused_and_not_proven(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ArgumentError) as error:
        results_of(SegmentsAlone())
    assert str(error.value).splitlines() == [
        "ArgumentError DSA602: layout segments_alone has no symbolic half, so nothing can be proven of it",
        "  expected  a ChunkedLayout or a DealtLayout of dsa_cp.layouts, which has its formulas as methods",
        "  got       SegmentsAlone, which has segment tables alone",
        "  try       derive it from ChunkedLayout (write slot, bounds) or from DealtLayout (write owner, count, token_at)",
    ]
    register_layout("segments_alone", SegmentsAlone)
    assert main(["prove", "--layout", "segments_alone", "--layout", "zigzag"]) == 2
    assert capsys.readouterr() == ("", f"dsa-cp: {error.value.headline}\n")


class BranchesOnOrder(broken.Even):
    """Asks whether a length is below a number."""

    def start(self, length: Any, cp_size: int, rank: Any, ops: Any) -> Any:
        return super().start(length, cp_size, rank, ops) if length >= 0 else 0


class BranchesOnEquality(broken.Even):
    """Loses every request of five tokens; z3 would say that `length == 5` is False, as the two are not one term."""

    def start(self, length: Any, cp_size: int, rank: Any, ops: Any) -> Any:
        return 0 if length == 5 else super().start(length, cp_size, rank, ops)


class Shrinks(broken.Even):
    """Uses Python's `//` and `min`."""

    def start(self, length: Any, cp_size: int, rank: Any, ops: Any) -> Any:
        return rank * (length // cp_size)


@pytest.mark.parametrize(
    ("layout", "because"),
    [
        (BranchesOnOrder(), "TypeError: padded_0 >= 0 is for all lengths, and neither true nor false"),
        (BranchesOnEquality(), "TypeError: padded_0 == 5 is for all lengths, and neither true nor false"),
        (Shrinks(), "TypeError: unsupported operand type(s) for //: 'ArithRef' and 'int'"),
    ],
    ids=lambda value: value.name if isinstance(value, Layout) else "",
)
def test_a_formula_that_z3_cannot_follow_is_named_with_what_to_use(layout: Layout, because: str) -> None:
    with pytest.raises(ArgumentError) as error:
        list(answer(ProofQuestion(ROWS_HAVE_ONE_WRITER, layout, 2), (1,), 60.0))
    assert (
        error.value.headline == f"a formula of layout {layout.name} does not run on z3 terms, so nothing can be proven of it"
    )
    assert error.value.facts == (
        ("because", because),
        ("try", "use + - * %, and ops.divide, ops.smaller, ops.larger and ops.choose for //, min, max and if"),
    )
