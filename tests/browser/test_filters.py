"""The filters of tables, as users type and share them."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import Visit
from tests.browser.stage import FOREVER, Stage
from tests.browser.views import button, rows
from tests.e2e.service import Service
from tests.present import require

pytestmark = pytest.mark.xdist_group("stories")


def test_news_leave_what_is_being_typed(stage: Stage, visit: Visit) -> None:
    """A filter applies when its field loses the focus; events of the cluster meanwhile do not clear it."""
    view = visit("/services")
    name = view.get_by_label("Name", exact=True)
    name.fill("new")
    for each in ("news", "olds"):
        Service(stage.cluster, stage.pool("web"), 1, FOREVER, name=each).create().wait_running()

    expect(view.get_by_role("link", name="olds")).to_be_visible()
    expect(name).to_have_value("new")
    name.press("Enter")
    expect(rows(view)).to_have_count(1)
    expect(view.get_by_role("link", name="news")).to_be_visible()


def test_a_job_is_found_and_its_address_shared(stage: Stage, visit: Visit) -> None:
    """A job is found by all filters together; the address shows the same to another user, and Back leads from the job
    to the table.
    """
    job = stage.running("report of june", owningTeam="analytics", labels=[{"key": "month", "value": "june"}])
    stage.running("report of may", owningTeam="analytics", labels=[{"key": "month", "value": "may"}])
    view = visit("/jobs")

    for label, text in {"Name": "report", "Pool": "/batch", "Owner": "analytics", "Labels": "month=june"}.items():
        view.get_by_label(label, exact=True).fill(text)
        view.keyboard.press("Enter")
    view.get_by_role("combobox", name="State").select_option("RUNNING")

    for page in (view, visit(view.url.removeprefix(stage.url))):
        expect(rows(page)).to_have_count(1)
        expect(page.get_by_role("status").filter(has_text="1 job matches.")).to_be_visible()
        page.get_by_role("link", name="report of june").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("report of june")
        expect(page).to_have_title("report of june Job · Peloton")
        assert f"/jobs/{job}" == urlsplit(page.url).path
    view.go_back()
    expect(view.get_by_label("Labels", exact=True)).to_have_value("month=june")
    expect(rows(view)).to_have_count(1)
    button(view, "Clear filters").click()
    expect(view.get_by_role("link", name="report of may")).to_be_visible()


GET_USAGE = "**/api/peloton.api.v0.history.HistoryService/GetUsage"


def test_the_usage_of_a_pool_is_shown_by_owner_and_day_and_downloaded(stage: Stage, visit: Visit) -> None:
    """The page of a pool leads to its usage; each choice is in the address and in the command, and the file has the
    lines of `peloton usage --csv`, of all kinds of resources.
    """
    stage.pool("batch")
    hours = [{"kind": "cpu", "used": 12.5, "borrowed": 2.5, "lent": 4}, {"kind": "gpu", "used": 1.5}]
    pool = {"path": "/batch", "poolId": "1", "hours": hours}
    owner = {"day": "2026-11-27", "path": "/batch", "owner": 'a "team", ltd', "hours": hours}
    asked: list[dict[str, object]] = []

    def answer(route: Route) -> None:
        asked.append(require(route.request.post_data_json))
        route.fulfill(json={"pools": [pool], "owners": [owner]})

    view = visit("/pools/batch")
    view.route(GET_USAGE, answer)
    view.get_by_role("link", name="Its usage").click()
    expect(view.get_by_label("Pool", exact=True)).to_have_value("/batch")
    expect(rows(view).locator("td")).to_have_text(["/batch", "12.5", "10", "2.5", "4"])

    view.get_by_role("combobox", name="By").select_option("owner")
    view.get_by_role("combobox", name="Days").select_option("each")
    view.get_by_role("combobox", name="Resource").select_option("GPU")
    view.get_by_role("combobox", name="The last").select_option("7 days")
    expect(rows(view).locator("td")).to_have_text(["/batch", 'a "team", ltd', "2026-11-27", "1.5", "1.5", "0"])
    expect(view.locator(".same-as code").first).to_have_text("peloton usage /batch --since 168h --by owner --daily")
    assert unquote(urlsplit(view.url).query) == "pool=/batch&by=owner&days=each&kind=gpu&hours=168"
    with view.expect_download() as file:
        button(view, "Download CSV").click()

    assert (["/batch"], True) == (asked[-1]["paths"], asked[-1]["daily"])
    assert [
        "pool,owner,day,kind,used,guaranteed,borrowed,lent",
        '/batch,"a ""team"", ltd",2026-11-27,core-hours,12.5,10,2.5,4',
        '/batch,"a ""team"", ltd",2026-11-27,GPU-hours,1.5,1.5,0,0',
    ] == file.value.path().read_text().splitlines()
    view.unroute(GET_USAGE)
