"""One browser and one cluster for a module. Without a browser its tests are skipped, and say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as View

from tests.browser.chromium import lacking
from tests.browser.pages import pages
from tests.browser.stage import Blank, Stage, staged
from tests.browser.views import PATIENCE_MS, chromium, opened
from tests.browser.world import World, world

Visit = Callable[..., View]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if why := lacking():
        pytest.skip(why)
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("pages")) as found:
        yield found


@pytest.fixture(scope="module")
def bare(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    expect.set_options(timeout=PATIENCE_MS)
    with staged(tmp_path_factory.mktemp("stories")) as found:
        yield found


@pytest.fixture(scope="module")
def blank(browser: Browser, bare: Stage) -> dict[str, Blank]:
    """By the name of the page; looked at before any story begins."""
    given, found = {"hosts/:name": bare.hosts()[0]}, {}
    for page in pages():
        if page.is_given(given):
            with opened(browser, bare.url + page.address(given)) as seen:
                commands = seen.view.locator(".empty code").all_text_contents()
                seen.unfold()
                found[page.name] = Blank(commands, seen.axe(), seen.faults)
    return found


@pytest.fixture(scope="module")
def stage(bare: Stage, blank: dict[str, Blank]) -> Stage:
    return bare


@pytest.fixture
def visit(browser: Browser, stage: Stage) -> Iterator[Visit]:
    """Opens a page at a path. At the end no browser has had anything to complain of."""
    with ExitStack() as stack:
        seen = []

        def open_page(path: str, *permissions: str) -> View:
            page = stack.enter_context(opened(browser, stage.url + path, permissions=permissions))
            seen.append(page)
            return page.view

        yield open_page
        assert [] == [fault for page in seen for fault in page.faults]
