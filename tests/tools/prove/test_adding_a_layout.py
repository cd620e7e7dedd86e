"""A layout is added with one file and one line: it is found by name, makes batches, and is proven."""

import importlib.util
import sys
from pathlib import Path

import pytest

from dsa_cp.cli import main
from dsa_cp.layouts import build_batches, layout_by_name, registry

FILE = '''\
"""`Striped`: two equal stripes of each request a rank."""

from dataclasses import dataclass

from dsa_cp.layouts import ChunkedLayout, register_layout
from dsa_cp.layouts.formulas import Arithmetic, T, equal_chunk_start


@dataclass(frozen=True)
class Striped(ChunkedLayout):
    """Each request is cut into `2 * cp_size` equal stripes; rank r holds stripes r and cp_size + r."""

    @property
    def name(self) -> str:
        """`striped`."""
        return "striped"

    def slot(self, slot: T, num_requests: int, ops: Arithmetic[T]) -> tuple[T, T]:
        """Return request and half of a slot: request by request."""
        return ops.divide(slot, 2), slot % 2

    def bounds(self, length: T, cp_size: int, rank: T | int, half: T | int, ops: Arithmetic[T]) -> tuple[T, T]:
        """Return start and stop of a stripe."""
        stripe = rank + half * cp_size
        start = equal_chunk_start(length, 2 * cp_size, stripe, ops)
        return start, equal_chunk_start(length, 2 * cp_size, stripe + 1, ops)


register_layout("striped", Striped)
'''


@pytest.fixture
def _striped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file, imported as somebody's module; what it registers is forgotten after the test."""
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    path = tmp_path / "striped.py"
    path.write_text(FILE)
    spec = importlib.util.spec_from_file_location("somebodys.striped", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)


@pytest.mark.usefixtures("_striped")
def test_one_file_and_one_line_add_a_layout(capsys: pytest.CaptureFixture[str]) -> None:
    batches = build_batches(layout_by_name("striped"), 2, [7, 2])
    assert [batch.local_rows.tolist() for batch in batches] == [[0, 1, 4, 5, 7], [2, 3, 6, 8]]
    assert batches[0].restore_index.tolist() == [0, 1, 5, 6, 2, 3, 7, 4, 8]
    assert main(["prove", "--layout", "striped", "--cp-size", "2", "--cp-size", "3"]) == 0
    out = capsys.readouterr().out
    assert "sampled    matched" in out
    assert out.count("   proven") == 7
    assert "refuted" not in out


@pytest.mark.usefixtures("_striped")
def test_proofs_without_a_layout_named_take_the_added_one_too() -> None:
    assert registry.layout_examples()[-1] == "striped"


@pytest.mark.usefixtures("_striped")
def test_a_plan_takes_the_added_layout(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--prefill-backend", "trtllm", "--layout", "striped", "--kv-format", "fp8", "--cp-size", "2"]
    assert main(["plan", *flags]) == 0
    assert "striped" in capsys.readouterr().out
