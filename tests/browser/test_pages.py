"""Every page in a real browser: accessibility, narrow screens, and comparison with its screenshot."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from cli.main import peloton
from cli.reference import context, iterate_commands
from tests.browser import pictures
from tests.browser.pages import Page, pages
from tests.browser.pictures import Theme
from tests.browser.views import NARROW, THEMES, Seen, open_view, see
from tests.browser.world import World
from tests.nightly import NIGHTLY, nightly

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.parametrize("page", pages(), ids=lambda page: page.name),
]
in_both_themes = pytest.mark.parametrize("theme", [THEMES[0], *map(nightly, THEMES[1:])])
Look = Callable[..., Seen]
CONTRAST = ("overview", "job", "log", "host", "submit")
"""Pages whose contrast ``make test`` checks. They have the app's components; all pages take colours from one table."""


@pytest.fixture(scope="module")
def look(shown: World, browser: Browser) -> Look:
    """Return a page in a theme, which is opened once for all tests that ask for the same."""

    def open_page(page: Page, theme: Theme, is_whole: bool = False) -> Seen:
        checks_contrast = is_whole or page.name in CONTRAST
        return see(browser, shown.url + page.address(shown.given), theme, is_whole, checks_contrast)

    return cache(open_page)


def test_a_page_has_no_fault_of_wcag_a_and_aa(look: Look, page: Page) -> None:
    """Axe's audit finds no fault, in folded parts either."""
    assert "" == look(page, THEMES[0]).audit


@NIGHTLY
@pytest.mark.parametrize("theme", THEMES)
def test_a_page_has_no_fault_and_enough_contrast(look: Look, page: Page, theme: Theme) -> None:
    """Axe's audit finds no fault, in the contrast of the colours of every page either."""
    assert "" == look(page, theme, True).audit


def test_a_page_that_becomes_narrow_does_not_scroll_sideways(look: Look, page: Page) -> None:
    """The page fits 360 px with all details unfolded."""
    assert [] == look(page, THEMES[0]).sticks_out


@NIGHTLY
def test_a_page_does_not_scroll_sideways_on_a_narrow_screen(shown: World, browser: Browser, page: Page) -> None:
    """The page does not scroll sideways at 360 px, also with all details unfolded."""
    with open_view(browser, shown.url + page.address(shown.given), size=NARROW) as open_page:
        folded = open_page.sticks_out()
        open_page.unfold()

        assert ([], []) == (folded, open_page.sticks_out())


@in_both_themes
def test_the_browser_has_nothing_to_complain_of(look: Look, page: Page, theme: Theme) -> None:
    """No script fails, the content security policy blocks no request, and no answer is an error."""
    assert [] == look(page, theme).faults


def test_a_page_has_a_title_of_its_own(look: Look, page: Page) -> None:
    """The title ends with the name of the application."""
    title = look(page, THEMES[0]).title

    assert title.endswith("Peloton")
    assert page.path == "/" or page.title in title


def test_a_page_says_what_gives_the_same(look: Look, page: Page) -> None:
    """The line on the page is an existing command."""
    commands = {path for path, _, _ in iterate_commands(peloton, context(peloton, "peloton"))}

    lines = [shlex.split(line) for line in look(page, THEMES[0]).same_as if line.startswith("peloton ")]

    assert lines
    assert [line for line in lines if not any(" ".join(line[:n]) in commands for n in range(2, len(line) + 1))] == []


@NIGHTLY
@pytest.mark.parametrize("theme", THEMES)
def test_a_page_renders_as_its_screenshot(look: Look, page: Page, theme: Theme, tmp_path: Path) -> None:
    """The page equals its screenshot except for variable parts."""
    kept = pictures.file_of(page.name, theme)
    assert kept.is_file(), "it has none: run make screenshots"
    picture = look(page, theme, True).picture
    assert picture is not None
    share, differs = pictures.difference(picture, kept)
    if share > pictures.SHARE_MAX:
        picture.image.save(tmp_path / "now.png")
        differs.save(tmp_path / "differs.png")
    assert share <= pictures.SHARE_MAX, f"see {tmp_path}; if it is meant to look so: make screenshots"
