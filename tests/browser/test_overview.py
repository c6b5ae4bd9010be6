"""The overview by clicks and keys: usage of the clusters over time, problems, and the search."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as View

from tests.browser.views import NARROW, TIMEOUT_MS, open_view, rows, settle
from tests.browser.world import JOBS, SHOP, World

pytestmark = pytest.mark.xdist_group("browser")
expect.set_options(timeout=TIMEOUT_MS)


def test_how_full_it_was_can_be_read_without_the_chart(shown: World, browser: Browser) -> None:
    """Usage of each kind and time range, which are in the address, is readable as text; a time without records is named
    as such.
    """
    with open_view(browser, f"{shown.url}/?kind=memory") as page:
        chart = page.view.get_by_role("region", name="Over time")
        expect(chart.get_by_role("img", name="Memory of the clusters over time")).to_be_visible()
        chart.get_by_label("The last").select_option(label="1 hour")
        table = chart.get_by_role("table", name="Memory in intervals of 1 min")
        row = table.get_by_role("row").filter(has_text="A allocated")
        expect(row).to_contain_text(re.compile(r"[1-9][0-9.,]* GiB"))
        chart.get_by_label("The last").select_option(label="1 year")
        expect(chart.get_by_role("table", name="nothing was recorded before")).to_be_visible()
        page.unfold()
        expect(rows(chart.get_by_role("table").last).first.get_by_role("cell").nth(1)).to_contain_text(
            re.compile(r"[GT]iB \(\d+ %\)")
        )
        assert [] == page.faults
        address = page.view.url

    with open_view(browser, address) as page:
        expect(page.view.get_by_label("The last")).to_have_value("8760")
        expect(page.view.get_by_label("Resource")).to_have_value("memory")


def test_a_job_that_no_host_can_take_is_reported(shown: World, browser: Browser) -> None:
    """An unplaceable job is shown with its numbers, and a link to its page."""
    with open_view(browser, shown.url) as page:
        wrong = page.view.get_by_role("region", name="Problems now").get_by_role("listitem")
        reported = wrong.filter(has_text="Job big in pool /ml/research cannot run")
        expect(reported).to_contain_text("2 instances fit no host, even an empty one: no host has cpu 64")
        reported.get_by_role("link").click()
        expect(page.view).to_have_url(f"{shown.url}/jobs/{JOBS['big']}")


def search(view: View, text: str) -> None:
    view.keyboard.press("/")
    view.get_by_role("combobox", name="Search").fill(text)


@pytest.mark.parametrize(
    ("text", "group", "found", "address"),
    [
        ("IM-00007", "Hosts", "sim-00007 of", "/hosts/sim-00007"),
        ("training", "Pools", "/ml/training", "/pools/ml/training"),
        ("sho", "Services", "shop in /web, running", f"/services/{SHOP}"),
        ("/ml/research/bi", "Jobs", "big in /ml/research, pending", f"/jobs/{JOBS['big']}"),
        (JOBS["train"], "Jobs", "train in /ml/training, running", f"/jobs/{JOBS['train']}"),
    ],
)
def test_search_finds(shown: World, browser: Browser, text: str, group: str, found: str, address: str) -> None:
    """The search works by keyboard alone: hosts and pools by a part of their names, services and jobs by their
    beginning.
    """
    with open_view(browser, shown.url) as page:
        search(page.view, text)
        hit = page.view.get_by_role("group", name=group).get_by_role("option", name=found)
        expect(hit).to_have_count(1)
        expect(hit).to_have_attribute("aria-selected", "true")
        assert "" == page.axe()
        page.view.keyboard.press("Enter")
        expect(page.view).to_have_url(shown.url + address)
        settle(page.view)
        assert [] == page.faults


def test_search_on_a_narrow_screen(shown: World, browser: Browser) -> None:
    """Names that begin with the text come first, arrows go through all groups, and no element overflows."""
    with open_view(browser, shown.url, size=NARROW) as page:
        search(page.view, "sim-000")
        expect(page.view.get_by_text("Hosts: there are more than 20, type more")).to_be_visible()
        for _ in range(19):
            page.view.keyboard.press("ArrowDown")
        last = page.view.get_by_role("option", name="sim-00019 of")
        expect(last).to_have_attribute("aria-selected", "true")
        expect(last).to_be_in_viewport()
        assert [] == page.sticks_out()
        search_for_nothing(page.view)


def search_for_nothing(view: View) -> None:
    view.get_by_role("combobox", name="Search").fill("nobody has that name")
    expect(view.get_by_text("No page, pool, job or host has that name.")).to_be_visible()
    view.keyboard.press("Escape")
    expect(view.get_by_role("combobox", name="Search")).to_be_hidden()
