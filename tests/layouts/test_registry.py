"""The registry of layouts: written names, parameters, and layouts of other packages."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsa_contracts.core import extensions
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.layout import Layout
from dsa_cp.layouts import (
    Interleave,
    VllmReplicated,
    VllmZigzag,
    Zigzag,
    layout_by_name,
    layout_choices,
    layout_examples,
    layout_names,
    register_layout,
    registry,
)
from dsa_cp.planner.options import PlanOptions


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(ArgumentError) as error:
        call()
    assert error.value.code == "DSA602"
    return error.value.headline


class Turned(Zigzag):
    @property
    def name(self) -> str:
        return "turned"


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that adds the layout `turned`."""
    info = tmp_path / "somebodys-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\nturned = somebodys_layouts:Turned\n")
    (tmp_path / "somebodys_layouts.py").write_text(SOMEBODYS)
    monkeypatch.syspath_prepend(tmp_path)
    extensions.load.cache_clear()
    yield
    extensions.load.cache_clear()


SOMEBODYS = """\
from dsa_cp.layouts import Zigzag


class Turned(Zigzag):
    @property
    def name(self) -> str:
        return "turned"
"""


@pytest.mark.parametrize(
    "layout", [Zigzag(), Interleave(), Interleave(64), VllmZigzag(), VllmReplicated()], ids=lambda layout: layout.name
)
def test_a_layout_is_found_by_the_name_that_it_writes(layout: Layout) -> None:
    assert layout_by_name(layout.name) == layout


def test_the_registry_is_what_may_be_asked_for() -> None:
    assert layout_names() == ("zigzag", "interleave", "vllm_zigzag", "vllm_replicated")
    assert layout_choices() == "zigzag, interleave, interleave(block=64) with any block, vllm_zigzag, vllm_replicated"
    assert [layout_by_name(name).name for name in layout_examples()] == list(layout_examples())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "spiral",
        "interleave()",
        "interleave(64)",
        "interleave(width=64)",
        "interleave(block=-1)",
        "zigzag(block=2)",
        None,
        3,
    ],
)
def test_another_name_or_parameter_is_refused(text: str) -> None:
    assert refused(lambda: layout_by_name(text)) == f"layout is {text!r}; it must be one of {layout_choices()}"


def test_a_registered_layout_is_found_by_name_and_by_the_options_of_a_plan() -> None:
    register_layout("turned", Turned)
    assert layout_by_name("turned") == Turned()
    assert PlanOptions(layout="turned", prefill_backend="trtllm", decode_backend="trtllm").layout == "turned"
    assert layout_choices().endswith(", vllm_replicated, turned")
    assert layout_examples()[-1] == "turned"


def test_a_name_belongs_to_one_layout() -> None:
    register_layout("zigzag", Zigzag)
    assert refused(lambda: register_layout("zigzag", Turned)) == (
        f"layout zigzag is registered already, as {Zigzag!r}; give this one another name"
    )


@pytest.mark.parametrize("name", ["", "Zig", "zig zag", "zig(1)", 4])
def test_a_name_is_a_small_word(name: str) -> None:
    text = f"a layout is named by small letters, digits and _, not {name!r}"
    assert refused(lambda: register_layout(name, Turned)) == text


def test_what_makes_no_layout_is_refused() -> None:
    def make() -> Layout:
        return "turned"  # type: ignore[return-value]

    register_layout("turned", make)
    assert refused(lambda: layout_by_name("turned")) == (
        f"layout turned is made by {make!r}, which gives a str and no Layout"
    )


@pytest.mark.usefixtures("_installed")
def test_a_layout_of_an_installed_package_is_loaded_when_its_name_is_asked_for() -> None:
    assert "turned" not in layout_names()
    assert layout_choices().endswith(", vllm_replicated, turned")
    assert "somebodys_layouts" not in sys.modules
    layout = layout_by_name("turned")
    assert (layout.name, type(layout).__module__) == ("turned", "somebodys_layouts")
    assert layout_names()[-1] == "turned"
    del sys.modules["somebodys_layouts"]


def test_what_cannot_be_called_makes_no_layout() -> None:
    assert refused(lambda: register_layout("turned", 3)) == "layout turned is made by a class or a function, not by 3"
