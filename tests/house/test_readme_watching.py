"""The lines of the README that watch an engine's function run, and find what they should."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import declare
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, Global, Packed, RankMajor, Rotated
from dsa_contracts.dsa.typevars import L
from dsa_cp.layouts import Zigzag, build_batch
from dsa_cp.tools.stage_table import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE, NUM_LAYERS = 4, 2


def lines_of_the_readme() -> str:
    """The program between the markers."""
    text = README.partition("<!-- watch: begin -->\n")[2].partition("<!-- watch: end -->")[0]
    return text.partition("```python\n")[2].partition("```")[0]


def run_the_readme(slots: str) -> None:
    """Run the lines around an engine that writes gathered rows into the slots of that name: 8 of each, in either order."""
    table = torch.tensor([[1, 2]], dtype=torch.int32)
    batch = build_batch(Zigzag(), 2, 0, [8], out_cache_loc=torch.arange(4, 12), page_table=table, page_size=PAGE)
    buffers = [torch.zeros(12, 1, 12, dtype=torch.uint8) for _ in range(NUM_LAYERS)]

    def set_kv_buffer(buffer: Tensor, loc: Tensor, rows: Tensor) -> None:
        at = loc >= 0
        buffer[loc[at], 0] = rows[: len(loc)][at]

    def run_layer(index: int) -> None:
        rows = torch.ones(batch.nnz_gathered, 12, dtype=torch.uint8)
        declare(rows, Global[RankMajor[L]], Packed[Fp8Row, Rotated], batch.at_layer(index), "the engine's gather")  # type: ignore[valid-type]
        engine.set_kv_buffer(buffers[index], getattr(batch, slots), rows)

    engine = SimpleNamespace(set_kv_buffer=set_kv_buffer, run_layer=run_layer)
    given: dict[str, Any] = {
        "batch": batch,
        "engine": engine,
        "num_layers": NUM_LAYERS,
        "page_size": PAGE,
        "row_format": fp8_format(8, 4),
    }
    exec(compile(lines_of_the_readme(), "README.md", "exec"), given)


def test_the_lines_of_the_readme_watch_every_layer_and_find_nothing_in_what_is_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_the_readme("rank_major_loc")
    assert capsys.readouterr().out == f"{NUM_LAYERS} {{}}\n"


def test_the_lines_of_the_readme_log_once_that_slots_are_in_another_order_than_rows(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.ERROR, logger="dsa_contracts"):
        run_the_readme("out_cache_loc")
    assert [record.getMessage().splitlines()[0] for record in caplog.records] == [
        "StageInputError DSA106: write_kv: loc holds Global[Sequence] rows, not Global[RankMajor[Zigzag]]"
    ]
    assert capsys.readouterr().out == f"{NUM_LAYERS} {{'DSA106': {NUM_LAYERS}}}\n"


def test_what_the_readme_shows_is_short() -> None:
    lines = [line for line in lines_of_the_readme().splitlines() if line and not line.startswith(("from ", "import "))]
    assert len(lines) <= 12
