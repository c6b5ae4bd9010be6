"""Problems that pages show: stale data, an unhealthy service, and a narrow screen."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as View

from tests.browser.conftest import Visit
from tests.browser.pages import pages
from tests.browser.stage import FOREVER, Stage
from tests.browser.views import NARROW, button, open_view, rows
from tests.e2e.service import Service
from tests.nightly import NIGHTLY

pytestmark = pytest.mark.xdist_group("stories")
CRASHES = '[ "$PELOTON_INSTANCE_ID" = 1 ] && { echo no config >&2; exit 3; }; exec sleep 100000'
AS_OF = re.compile(r"as of \d{1,2}:\d{2}:\d{2}")
NOTE_TEXTS = """
  window.drawn = [];
  const draw = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, ...rest) {
    drawn.push([text, Math.round(x)]);
    return draw.call(this, text, x, ...rest);
  };
"""
POOLS = [["/", 0, False, 0, 0, {"cpu": [4, None, 1, 4, 1, 0, 0]}]]


def header(view: View) -> Any:
    return view.locator("header")


def test_the_header_says_how_old_the_page_is_while_the_api_is_away(stage: Stage, browser: Browser) -> None:
    """The header is amber with the time of the shown data, and gRPC's message in its details. A page that is opened
    meanwhile shows neither counts nor a connection attempt. The page is live again when role api has started, and so it
    is after a restart of role web.
    """
    job = stage.running("ages")
    with open_view(browser, f"{stage.url}/jobs/{job}") as page:
        view, mark = page.view, page.view.locator("header .stale-now")
        expect(header(view).get_by_text("Live", exact=True)).to_be_visible()
        stage.cluster.stop_part("api")
        expect(mark.get_by_text(AS_OF)).to_be_visible()
        expect(header(view).get_by_text("Live", exact=True)).to_have_count(0)
        expect(view.get_by_role("heading", level=1)).to_have_text("ages")
        expect(mark.get_by_text("the api does not answer")).to_be_hidden()
        mark.locator("summary").click()
        expect(mark.get_by_text(re.compile("the api does not answer: .*connect"))).to_be_visible()
        assert "" == page.axe()
        assert "rgb(255, 212, 121)" == mark.locator("summary").evaluate("one => getComputedStyle(one).backgroundColor")

        view.goto(f"{stage.url}/jobs")
        expect(mark.get_by_text("Not live")).to_be_visible()
        expect(view.get_by_text("Not counted")).to_be_visible()
        expect(view.get_by_text("Counting")).to_have_count(0)
        view.goto(f"{stage.url}/nowhere")
        expect(view.get_by_role("heading", level=1)).to_have_text("There is no such page")
        expect(header(view).get_by_role("status")).to_have_count(0)

        view.goto(f"{stage.url}/jobs/{job}")
        expect(view.get_by_role("alert").filter(has_text="the api does not answer").first).to_be_visible()
        stage.cluster.start_part("api")
        expect(header(view).get_by_text("Live", exact=True)).to_be_visible()
        expect(view.get_by_role("heading", level=1)).to_have_text("ages")
        expect(view.get_by_role("region", name="Configuration")).to_contain_text("Each instance asks for")
        expect(view.get_by_role("alert")).to_have_count(0)

        stage.cluster.stop_part("web")
        expect(mark.get_by_text(AS_OF)).to_be_visible()
        stage.cluster.start_part("web")
        expect(header(view).get_by_text("Live", exact=True)).to_be_visible()


def test_a_topic_that_is_not_answered_makes_the_page_stale(visit: Visit) -> None:
    """One unanswered topic of several makes the page stale; a not-found answer does not."""
    reported: Mapping[str, Any] = {
        "overview": {"error": {"code": "unavailable", "message": "the api does not answer: x"}, "asOfMs": 1},
        "host-map": {"error": {"code": "not_found", "message": "gone"}},
    }
    view = visit("/")
    body = "".join(f"event: {topic}\ndata: {json.dumps(value)}\n\n" for topic, value in reported.items())
    view.route("**/live?*", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    view.reload()

    expect(header(view).locator(".stale-now")).to_contain_text("Not live")
    expect(view.get_by_role("main").get_by_role("alert").first).to_contain_text("the api does not answer")


def test_a_service_that_crash_loops_says_so_above_all_else(stage: Stage, visit: Visit) -> None:
    """A banner shows the cause and a link to stderr; pods have attempts, and links to their logs."""
    service = Service(stage.cluster, stage.pool("web"), 2, CRASHES, name="loops").create()
    view = visit(f"/services/{service.id}")
    banner = view.get_by_role("alert", name="Problems")

    expect(banner.get_by_role("heading", name="1 of 2 instances fails")).to_be_visible()
    expect(banner).to_contain_text(re.compile("exit code 3|exited with status 3"))
    pods = view.get_by_role("region", name="Pods").get_by_role("table")
    expect(rows(pods).nth(1).get_by_role("cell").nth(6)).to_have_text(re.compile(r"^[2-9]$"))
    expect(rows(pods).nth(0).get_by_role("link", name="0 logs")).to_have_attribute("href", f"/jobs/{service.id}/0/log")
    banner.get_by_role("link", name="stderr of instance 1").click()
    expect(view.get_by_label("stderr of instance 1")).to_contain_text("no config")


def test_a_service_that_is_well_has_no_banner(stage: Stage, visit: Visit) -> None:
    """A healthy service has no banner, and a page of few instances has no page buttons."""
    service = Service(stage.cluster, stage.pool("web"), 1, FOREVER, name="well").create().wait_running()
    view = visit(f"/services/{service.id}")
    expect(rows(view.get_by_role("region", name="Pods")).first).to_contain_text("running")
    expect(view.get_by_role("alert", name="Problems")).to_have_count(0)

    view = visit(f"/jobs/{service.id}")
    table = view.get_by_role("region", name="Instances as a table")
    expect(table.get_by_role("columnheader")).to_have_text(
        ["Instance", "State", "Host", "Started", "Duration", "Attempts", "Failures", "Message"]
    )
    expect(rows(table).first.get_by_role("cell").nth(5)).to_have_text("1")
    expect(button(table, "Next")).to_have_count(0)


def test_rows_are_cards_and_the_navigation_folds_on_a_narrow_screen(stage: Stage, browser: Browser) -> None:
    """The reason of a wait is on the screen, and the header is one line until its menu is opened."""
    stage.full_pool("tight")
    stage.submit("comes later", pool="tight", cpu=1)
    with open_view(browser, f"{stage.url}/pools/tight", size=NARROW) as page:
        view = page.view
        why = rows(view.get_by_role("region", name="Queue")).first.get_by_role("cell").last
        expect(why).to_contain_text("left of the pool limit of /tight")
        box = why.bounding_box()
        assert box is not None
        assert 0 <= box["x"] < box["x"] + box["width"] <= NARROW["width"]
        assert box["height"] < 120
        top = header(view).bounding_box()
        assert top is not None
        assert top["height"] < 60

        link = header(view).get_by_role("link", name="Hosts")
        expect(link).to_be_hidden()
        button(view, "Menu").click()
        assert "" == page.axe()
        link.click()
        expect(view.get_by_role("heading", level=1)).to_have_text("Hosts")
        expect(header(view).get_by_role("link", name="Jobs")).to_be_hidden()


@NIGHTLY
@pytest.mark.parametrize("page", [page for page in pages() if ":" not in page.path], ids=lambda page: page.name)
def test_a_narrow_page_has_no_fault_of_accessibility(stage: Stage, browser: Browser, page: Any) -> None:
    """Axe finds no fault: cards are rows of a table to a screen reader."""
    with open_view(browser, stage.url + page.path, size=NARROW) as open_page:
        assert "" == open_page.axe()


def young(view: View, points: int, step_s: int) -> None:
    """Load the page of pools of a cluster with so many recorded points, in the last two hours."""
    count = 120
    values: list[float | None] = [None] * (count - points) + [1.0] * points
    pool = {"path": "/", "isRecorded": points > 0, "allocation": values, "reservation": values, "entitlement": values}
    history = {"start": "2026-01-01T10:00:00Z", "stepS": step_s, "count": count, "pools": [pool], "marks": []}
    reported = {"pools": {"value": POOLS}, "pool-history:6/cpu/": {"value": history}}
    body = "".join(f"event: {topic}\ndata: {json.dumps(value)}\n\n" for topic, value in reported.items())
    view.unroute("**/live?*")
    view.route("**/live?*", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    view.goto(view.url)


def test_a_chart_begins_with_two_points_and_its_labels_differ(visit: Visit) -> None:
    """A chart of one point is empty; labels of a few seconds have seconds; the named start of the records is that of
    the first point.
    """
    view = visit("/pools")
    view.context.add_init_script(NOTE_TEXTS)
    chart = view.get_by_role("region", name="Over time")

    young(view, 1, 60)
    expect(chart).to_contain_text("The chart begins with the second, within 1 min")
    expect(chart.locator("canvas")).to_have_count(0)

    young(view, 4, 5)
    expect(chart.locator("canvas")).to_have_count(1)
    expect(chart.get_by_role("table", name="Allocation in intervals")).to_contain_text(
        "nothing was recorded before 1 Jan 2026, 10:09:40"
    )
    places = {(text, x) for text, x in view.evaluate("drawn") if ":" in text}
    labels = sorted(text for text, _ in places)
    assert len(labels) > 1
    assert sorted(set(labels)) == labels  # the same one is at one place
    assert [] == [text for text in labels if not re.fullmatch(r"\d\d:\d\d:\d\d", text)]
    view.close()  # the script that notes texts would remain
