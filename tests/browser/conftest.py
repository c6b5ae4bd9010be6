"""One browser and one cluster for a module. Without a browser its tests are skipped, and say so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import lacking
from tests.browser.views import chromium
from tests.browser.world import World, world


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
