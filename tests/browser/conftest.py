"""One browser and one cluster for all modules of a group. Without a browser its tests are skipped, and say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as View

from peloton.api.v0.job import job_pb2
from tests.browser.chromium import lacking
from tests.browser.stage import Stage, stage_cluster
from tests.browser.views import TIMEOUT_MS, chromium, open_view
from tests.browser.world import World, world
from tests.e2e.shared import clear
from tests.sharing import Shared

Visit = Callable[..., View]


@pytest.fixture(scope="module")
def browser(shared: Shared) -> Browser:
    if why := lacking():
        pytest.skip(why)
    return shared.get("browser", chromium)


@pytest.fixture(scope="module")
def shown(browser: Browser, shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> World:
    return shared.get("world", lambda: world(tmp_path_factory.mktemp("pages")))


@pytest.fixture(scope="module")
def stage(browser: Browser, shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Yield a cluster with hosts and nothing on them; only its lists name what earlier modules ran."""
    expect.set_options(timeout=TIMEOUT_MS)
    found = shared.get("stage", lambda: stage_cluster(tmp_path_factory.mktemp("stories")))
    yield found
    clear(found.cluster)
    found.pools.clear()
    for job in found.cluster.client.jobs.Query(job_pb2.QueryRequest()).results:
        found.cluster.client.jobs.Delete(job_pb2.DeleteRequest(id=job.id))


@pytest.fixture
def visit(browser: Browser, stage: Stage) -> Iterator[Visit]:
    """Yield a function that opens a page at a path; in the end no browser has complained of one."""
    with ExitStack() as stack:
        seen = []

        def open_page(path: str, *permissions: str) -> View:
            page = stack.enter_context(open_view(browser, stage.url + path, permissions=permissions))
            seen.append(page)
            return page.view

        yield open_page
        assert [] == [fault for page in seen for fault in page.faults]
