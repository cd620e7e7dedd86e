"""Which requests of a batch are decodes: one flag a request, and layouts that do not tell them apart."""

import pytest

from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.layout import Layout
from dsa_cp.layouts import Interleave, VllmZigzag, Zigzag, build_batch, build_batches


@pytest.mark.parametrize("layout", [Zigzag(), Interleave(), Interleave(3)], ids=lambda layout: layout.name)
def test_a_layout_that_does_not_tell_decodes_apart_cuts_them_as_other_requests(layout: Layout) -> None:
    plain, marked = (build_batches(layout, 2, [4, 1], decodes=decodes) for decodes in ([], [False, True]))
    assert [batch.local_rows.tolist() for batch in plain] == [batch.local_rows.tolist() for batch in marked]


def test_build_batch_takes_the_flags_too() -> None:
    assert build_batch(VllmZigzag(), 2, 1, [4, 1, 1], decodes=[False, True, True]).local_rows.tolist() == [5, 1, 2]


@pytest.mark.parametrize(
    ("decodes", "headline"),
    [
        ([True], "decodes has 1 flags, the batch has 2 requests"),
        ([True, 1], "request 1: decodes is 1; it must be True or False"),
        ([True, None], "request 1: decodes is None; it must be True or False"),
    ],
)
@pytest.mark.parametrize("layout", [VllmZigzag(), Zigzag()], ids=lambda layout: layout.name)
def test_flags_that_do_not_fit_are_refused(layout: Layout, decodes: list[bool], headline: str) -> None:
    with pytest.raises(BatchError) as error:
        build_batches(layout, 2, [4, 1], decodes=decodes)
    assert (error.value.code, error.value.headline) == ("DSA301", headline)
