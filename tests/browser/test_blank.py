"""Pages of a cluster that has run nothing: the first module of its group."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from cli.main import peloton
from cli.reference import context, iterate_commands
from tests.browser.conftest import Visit
from tests.browser.pages import pages
from tests.browser.stage import Stage
from tests.browser.views import open_view
from tests.nightly import NIGHTLY

pytestmark = pytest.mark.xdist_group("stories")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", ["/", "/pools", "/jobs", "/services"])
def test_a_page_without_anything_teaches_the_next_command(visit: Visit, path: str) -> None:
    """The command that the page names exists, and so do its files."""
    known = {path for path, _, _ in iterate_commands(peloton, context(peloton, "peloton"))}

    lines = [shlex.split(line) for line in visit(path).locator(".empty code").all_text_contents()]

    assert lines
    assert [line for line in lines if not any(" ".join(line[:n]) in known for n in range(2, len(line) + 1))] == []
    files = [ROOT / word for line in lines for word in line if word.startswith("examples/")]
    assert [] == [file for file in files if not file.is_file()]


@NIGHTLY
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_without_anything_has_no_faults(stage: Stage, browser: Browser, page: Any) -> None:
    """Axe and the browser report no fault."""
    given = {"hosts/:name": stage.hosts()[0]}
    if not page.is_given(given):
        pytest.skip("it is about something that this cluster does not have")
    with open_view(browser, stage.url + page.address(given)) as seen:
        seen.unfold()
        assert ("", []) == (seen.axe(), seen.faults)
