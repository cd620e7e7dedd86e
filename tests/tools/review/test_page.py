"""The page: one file that needs nothing else, and, where a Chromium is installed, how it looks."""

import itertools
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

import dsa_contracts.stages as contracts
from dsa_contracts import contract_of
from dsa_cp.layouts import Interleave, Zigzag
from dsa_cp.planner.search import legal_paths
from dsa_cp.tools.review.drawings.scene import Scene
from dsa_cp.tools.review.drawings.stage_drawings import stage_drawing
from dsa_cp.tools.review.drawings.svg import Sheet
from dsa_cp.tools.review.page import page
from dsa_cp.tools.review.stage_catalogue import environment
from dsa_cp.tools.stage_table import ROOT
from tests.support import browser as chromium

LAYOUT = Path(__file__).with_name("layout.js").read_text(encoding="utf-8")
VOID = {"meta", "br", "wbr", "link", "img", "input", "hr"}
needs_chromium = pytest.mark.skipif(chromium.find() is None, reason="no Chromium here: the page was not looked at")


@pytest.fixture(scope="module")
def made() -> str:
    return page()


@pytest.fixture(scope="module")
def shown(made: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[chromium.Browser, Path]]:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(made, encoding="utf-8")
    with chromium.browser() as opened:
        yield opened, path


class Outline(HTMLParser):
    """Elements, their ids and links; complains about elements that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.levels: list[int] = []
        self.names: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.names.append(tag)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [found[key] or "" for key in ("href", "src") if key in found]
        if re.fullmatch(r"h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_small_and_needs_nothing_else(made: str) -> None:
    outline = Outline(made)
    assert len(made.encode()) < 300_000
    assert made.isascii()
    assert outline.open == []
    assert [link for link in outline.links if not link.startswith("#")] == []
    assert set(outline.names) & {"script", "img", "link", "iframe", "object"} == set()
    assert re.findall(r"url\((?!#)", made) == []
    assert "@import" not in made
    assert "http://" not in made
    assert "https://" not in made


def test_every_link_has_its_place_and_every_place_its_own_name(made: str) -> None:
    outline = Outline(made)
    assert len(outline.ids) == len(set(outline.ids))
    assert {link.removeprefix("#") for link in outline.links} <= set(outline.ids)


def test_headings_go_down_one_level_at_a_time(made: str) -> None:
    levels = Outline(made).levels
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 or (before, after) == (2, 4) for before, after in itertools.pairwise(levels))


def test_every_drawing_has_a_title_and_says_itself_in_words(made: str) -> None:
    drawings = re.findall(
        r'<svg viewBox="[^"]*" role="img" aria-labelledby="(\S+) (\S+)"><title id="(\S+)">([^<]+)</title>'
        r'<desc id="(\S+)">([^<]+)</desc>',
        made,
    )
    assert len(drawings) == made.count("<figure>")
    assert all((one, two) == (title, words) for one, two, title, _, words, _ in drawings)


def test_the_page_draws_every_stage_in_each_layout_and_every_placement(made: str) -> None:
    titles = re.findall(r"<title id=\S+>([^<]+)</title>", made)
    for layout in ("zigzag", "interleave", "vllm_zigzag"):
        assert [name for name in contracts.__all__ if f"{name} under {layout}, before and after" not in titles] == []
    assert [f"Placement {path.name}" for path in legal_paths(Interleave)] == [t for t in titles if t.startswith("Placement")]
    assert "PlanError DSA402: rope_quantize: k_nope holds Global[Sequence] rows" in made


def test_a_drawing_says_where_every_token_stands() -> None:
    svg = stage_drawing(Sheet(), contract_of(contracts.all_gather_kv), Scene(Zigzag()))
    assert re.findall(r"<desc[^>]*>([^<]*)</desc>", svg) == [
        (
            "takes kv. rank 0: A2 A3 B0 A8 B3; rank 1: A4 A5 B1 A6 A7 B2. "
            "returns gathered. rank 0: A2 A3 B0 A8 B3 padding; rank 1: A4 A5 B1 A6 A7 B2"
        )
    ]


def test_the_pool_is_drawn_with_the_slots_of_the_batch() -> None:
    pool = Scene(Interleave()).pool(is_written=True)
    assert pool.text == (
        "page 0: A4 A5 A6 A7; page 1: B0 B1 B2 B3; page 2: - - - -; page 3: A0 A1 A2 A3; page 4: A8 - - -; page 5: - - - -"
    )


def colours(css: str) -> dict[str, tuple[float, float, float]]:
    """Variables of one rule of the style sheet, as red, green and blue from 0 to 1."""
    found = re.findall(r"--(\w+):#([0-9a-f]{3,6})", css)
    wide = [(name, "".join(digit * 2 for digit in text) if len(text) == 3 else text) for name, text in found]
    return {name: (int(text[:2], 16) / 255, int(text[2:4], 16) / 255, int(text[4:], 16) / 255) for name, text in wide}


def luminance(colour: tuple[float, float, float]) -> float:
    parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_from_what_is_under_it(scheme: int) -> None:
    css = environment(is_html=True).get_template("page.css").render()
    known = colours(re.findall(r":root\{(--bg[^}]*)\}", css)[scheme])
    on = [("text", under) for under in ("bg", "card", "a", "b", "other", "zl", "zg", "node")]
    on += [("soft", under) for under in ("bg", "card", "zl", "zg")] + [("link", "bg"), ("gt", "gather")]
    for front, back in on:
        high, low = sorted((luminance(known[front]), luminance(known[back])), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (front, back)


@needs_chromium
@pytest.mark.process
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_nothing_overlaps_and_nothing_is_cut(shown: tuple[chromium.Browser, Path], width: int, is_dark: bool) -> None:
    opened, path = shown
    opened.show(path, width, is_dark=is_dark)
    assert opened.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is is_dark
    assert opened.evaluate(LAYOUT) == []


@needs_chromium
@pytest.mark.process
def test_the_check_of_the_layout_finds_what_is_wrong(shown: tuple[chromium.Browser, Path], tmp_path: Path) -> None:
    opened, path = shown
    wrong = tmp_path / "wrong.html"
    extra = '<p style="width:900px">wide</p><p style="position:absolute;left:20px;top:60px">over the title</p>'
    clipped = '<p style="width:40px;overflow:hidden;white-space:nowrap">a text that is cut</p>'
    wrong.write_text(path.read_text(encoding="utf-8").replace("<main>", f"<main>{extra}{clipped}"), encoding="utf-8")
    opened.show(wrong, 400, is_dark=False)
    problems = opened.evaluate(LAYOUT)
    assert "cut or scrolled: a text that is cut" in problems
    assert any(problem.startswith("the page is ") for problem in problems)
    assert any(problem.startswith("overlap: ") and "over the title" in problem for problem in problems)


@pytest.mark.parametrize("name", ["review-400.png", "review-1400.png"])
def test_pictures_in_the_documents_are_small(name: str) -> None:
    assert (ROOT / "docs" / "img" / name).stat().st_size < 300_000
