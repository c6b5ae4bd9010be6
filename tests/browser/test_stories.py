"""Stories of users on the pages by clicks and keys, and their effects on the cluster."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import grpc
import pytest
from playwright.sync_api import Browser, expect

from peloton.api.v0.maintenance import maintenance_pb2
from peloton.api.v1alpha.peloton_pb2 import PodName
from peloton.api.v1alpha.pod.svc.pod_svc_pb2 import RestartPodRequest
from tests.browser.conftest import Visit
from tests.browser.pages import pages
from tests.browser.stage import COUNTS, FOREVER, Stage
from tests.browser.views import button, confirm, hesitate, open_view, rows
from tests.e2e.service import Service
from tests.nightly import NIGHTLY

pytestmark = pytest.mark.xdist_group("stories")
PAGE_OF_JOBS = 50
NO_HOSTS = '{"value": {"maps": [], "silent": []}}'


def test_a_cluster_without_hosts_says_how_to_get_some(visit: Visit) -> None:
    """A page of a cluster without hosts shows how to add some; all live topics are answered as for an empty cluster."""
    view = visit("/hosts")
    body = "".join(f"event: {topic}\ndata: {NO_HOSTS}\n\n" for topic in ("host-names", "host-map"))
    view.route("**/live?*", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    view.reload()

    expect(view.locator(".empty").filter(has_text="There are no hosts yet.")).to_contain_text(
        "peloton up --simulate 1000"
    )


def test_the_table_of_jobs_is_read_page_by_page(stage: Stage, visit: Visit) -> None:
    """Each job is on exactly one page of the table; the first page is reached again both ways."""
    names = {f"one of a crowd {n}" for n in range(PAGE_OF_JOBS + 3)}
    stage.store_ended(names, "crowded", owningTeam="crowd")
    view = visit("/jobs?owner=crowd")
    turns = view.get_by_role("navigation", name="Pages of the table")

    expect(rows(view)).to_have_count(PAGE_OF_JOBS)
    seen = rows(view).locator("td:nth-child(2)").all_text_contents()
    turns.get_by_role("link", name="Next").click()
    expect(rows(view)).to_have_count(3)
    seen += rows(view).locator("td:nth-child(2)").all_text_contents()

    assert names == set(seen)
    assert len(names) == len(seen)
    for way in ("Previous", "First page"):
        expect(rows(view)).to_have_count(3)
        turns.get_by_role("link", name=way).click()
        expect(rows(view)).to_have_count(PAGE_OF_JOBS)
        if way == "Previous":
            view.go_back()


def test_a_log_is_followed_and_the_job_stopped(stage: Stage, visit: Visit) -> None:
    """A stop asks for a confirmation: the job runs on without it."""
    job = stage.running("counts", COUNTS)
    view = visit(f"/jobs/{job}")

    button(rows(view.get_by_role("region", name="Instances as a table")), "0").click()
    log = view.get_by_label("stdout of instance 0")
    expect(log).to_contain_text(re.compile(r"line 1\b"))
    last = max(map(int, re.findall(r"line (\d+)", log.text_content() or "")))
    expect(log).to_contain_text(f"line {last + 5}")
    expect(view.get_by_text("Following", exact=True)).to_be_visible()

    hesitate(view, "Stop job")
    assert "RUNNING" == stage.cluster.job_state(job)
    confirm(view, "Stop job")
    expect(view.locator(".facts .state").first).to_contain_text("killed")
    expect(button(view, "Stop job")).to_have_count(0)
    expect(view.get_by_text("The run has ended")).to_be_visible()
    assert {"KILLED": 1} == stage.cluster.counts(job)


def test_a_log_shows_what_would_run_backwards(stage: Stage, visit: Visit) -> None:
    """Controls and characters that change the direction of text are escaped, as in every text of a page; sequences that
    colour a terminal are left out.
    """
    job = stage.running("backwards", f"printf 'x\\033[31m\\342\\200\\256y\\a\\n'; {FOREVER}")
    view = visit(f"/jobs/{job}")

    button(rows(view.get_by_role("region", name="Instances as a table")), "0").click()
    expect(view.get_by_label("stdout of instance 0")).to_contain_text(r"x\u202ey\x07")


def test_instances_are_found_by_state_and_run_again(stage: Stage, visit: Visit) -> None:
    """A failed instance shows its failure; a running one is restarted alone, and the others keep their runs."""
    command = f'[ "$PELOTON_INSTANCE_ID" = 2 ] && exit 3; {FOREVER}'
    job = stage.submit("mixed", command, count=4, task={"restartPolicy": {"maxFailures": 0}})
    stage.cluster.wait(lambda: stage.cluster.counts(job) == {"RUNNING": 3, "FAILED": 1}, "three that run and a failure")
    view = visit(f"/jobs/{job}")
    table = view.get_by_role("region", name="Instances as a table")

    expect(rows(table)).to_have_count(4)
    table.get_by_label("State").select_option("FAILED")
    expect(rows(table)).to_have_count(1)
    expect(rows(table)).to_contain_text("failed")
    button(table, "2").click()
    expect(rows(view.get_by_role("region", name="Instance 2", exact=True)).first).to_contain_text("failed")

    table.get_by_label("State").select_option("RUNNING")
    expect(rows(table)).to_have_count(3)
    button(table, "1").click()
    confirm(view, "Restart instance")
    events = view.get_by_role("region", name="Instance 1", exact=True).get_by_role("table")
    second = rows(events).filter(has=view.locator("td:nth-child(4)", has_text=re.compile("^2$")))
    expect(second.filter(has=view.locator(".state", has_text="running"))).to_have_count(1)
    assert {0: 1, 1: 2, 2: 1, 3: 1} == stage.cluster.run_ids(job)


def test_a_job_that_waits_says_why(stage: Stage, visit: Visit) -> None:
    """The reason of a waiting job is a tree: the place in the queue, below it the rule with its numbers, and the jobs
    that use the resources.
    """
    stage.full_pool("narrow")
    view = visit(f"/jobs/{stage.submit('comes later', pool='narrow', cpu=1)}")

    tree = view.get_by_role("region", name="Why it waits").locator("ul.tree")

    expect(tree.locator("> li").first).to_contain_text("1 instance from instance 0 on")
    expect(tree.locator("> li li").first).to_contain_text("/narrow, cpu: wanted 1 core, available 0 cores of 1 core")
    tree.get_by_role("link", name="holds all").click()
    expect(view.get_by_role("heading", level=1)).to_have_text("holds all")


def test_a_host_is_drained_after_a_read_of_the_plan(stage: Stage, visit: Visit) -> None:
    """A drain begins when its plan is confirmed. The page of the host follows it down and up again; another host, which
    waits for its turn, is released.
    """
    last = stage.folder / "last"
    lingers = f"trap 'while [ ! -e {last} ]; do sleep 0.1; done; exit 0' TERM; while :; do sleep 0.1; done"
    job = stage.running("lingers", lingers, task={"killGracePeriodSeconds": 600})
    host = stage.cluster.task(job).runtime.host
    other = next(name for name in stage.hosts() if name != host)
    view = visit(f"/hosts/{host}")
    maintenance = view.get_by_role("region", name="Maintenance")

    button(view, "Plan a drain").click()
    expect(rows(maintenance).filter(has_text="lingers")).to_contain_text("at once, and are queued again")
    view.get_by_label("Reason").fill("new disks")
    hesitate(view, "Drain")
    assert [] == list(stage.cluster.client.maintenance.Query(maintenance_pb2.QueryRequest()).hosts)
    confirm(view, "Drain")
    expect(view.locator(".facts .state").first).to_contain_text("draining")
    expect(maintenance).to_contain_text("because: new disks")
    expect(maintenance).to_contain_text("1 pod on it, 1 leaving")

    waiting = visit(f"/hosts/{other}")
    button(waiting, "Plan a drain").click()
    confirm(waiting, "Drain")
    expect(waiting.get_by_text("Waits for its turn: 1 of at most 1 hosts are draining or down")).to_be_visible()
    confirm(waiting, "Cancel")
    expect(waiting.get_by_text("The host is in service.")).to_be_visible()

    last.touch()
    expect(view.locator(".facts .state").first).to_contain_text("down")
    confirm(view, "Complete")
    expect(view.get_by_text("The host is in service.")).to_be_visible()
    expect(view.locator(".facts .state").first).to_contain_text("up")
    stage.cluster.wait(lambda: stage.cluster.counts(job) == {"RUNNING": 1}, "the pod elsewhere")


@pytest.fixture
def service(stage: Stage) -> Service:
    found = Service(stage.cluster, stage.pool("web"), 3, FOREVER, name="shop", sla={"maximumUnavailableInstances": 1})
    return found.create().wait_running()


def test_an_update_is_steered(stage: Stage, service: Service, visit: Visit) -> None:
    """A paused update is resumed, and shown live until it is done; the next one, which is stuck, is paused, aborted and
    rolled back. The page keeps the history, the differences, and the requests to the SLA.
    """
    view = visit(f"/services/{service.id}")
    rollout, sides = (view.get_by_role("region", name=name) for name in ("Rollout", "Versions side by side"))
    history, sla = (view.get_by_role("region", name=name) for name in ("History", "SLA"))
    state = rollout.locator(".state")
    expect(view.get_by_role("heading", level=1)).to_have_text("shop")
    expect(view).to_have_title("shop Service · Peloton")

    service.replace("exec sleep 200000", batch_size=1, start_paused=True)
    expect(state).to_contain_text("paused")
    expect(rollout).to_contain_text("0 of 3 done")
    hesitate(view, "Resume")
    assert "PAUSED" == service.update_state
    confirm(view, "Resume")
    expect(state).to_contain_text("succeeded")
    expect(rollout).to_contain_text("3 of 3 done")
    expect(sides.locator(".row")).to_have_count(1)
    good = service.config

    service.memory_mb = 4_000  # no host has as much
    service.replace("exec sleep 300000", batch_size=1)
    expect(rollout).to_contain_text("1 in flight")
    expect(sides.locator(".row")).to_have_count(2)
    expect(sla).to_contain_text("1 of 3 do not run now")
    asked = RestartPodRequest(pod_name=PodName(value=f"{service.id}-2"), check_sla=True)
    with pytest.raises(grpc.RpcError, match="would violate SLA"):
        stage.cluster.client.pods.RestartPod(asked)
    expect(rows(sla).first).to_contain_text("refused")

    confirm(view, "Pause")
    expect(state).to_contain_text("paused")
    hesitate(view, "Abort")
    assert "PAUSED" == service.update_state
    confirm(view, "Abort")
    expect(state).to_contain_text("aborted")
    expect(rows(history).filter(has_text="aborted")).to_have_count(1)
    expect(history.locator(".diff .added").filter(has_text="exec sleep 300000").first).to_be_visible()
    expect(history.locator(".diff .removed").filter(has_text="exec sleep 200000").first).to_be_visible()

    back = history.get_by_role("button", name=f"Roll back to version {good}", exact=True)
    expect(back).to_have_count(1)
    confirm(view, back.text_content() or "")
    expect(state).to_contain_text("succeeded")
    expect(sla).to_contain_text("0 of 3 do not run now")
    expect(sides.locator(".row")).to_have_count(1)
    stage.cluster.client.pods.RestartPod(asked)
    expect(rows(sla).first).to_contain_text("granted")


def test_a_pool_says_why_its_queue_waits_and_what_a_change_would_do(stage: Stage, visit: Visit) -> None:
    """The sliders show the effect of a change, and change nothing."""
    stage.full_pool("lab")
    stage.submit("comes later", pool="lab", cpu=1)
    before = stage.pool_config("lab")
    view = visit("/pools")

    view.get_by_role("list", name="Pools, CPU").get_by_role("link", name="lab").click()
    queue, what_if = (view.get_by_role("region", name=name) for name in ("Queue", "What if"))
    expect(rows(queue)).to_have_count(1)
    expect(rows(queue)).to_contain_text("comes later")
    expect(rows(queue).locator("td").last).to_contain_text("limit")
    what_if.get_by_label("Limit").press("End")
    expect(rows(what_if).filter(has_text="/lab")).to_contain_text("CPU")
    expect(what_if).to_contain_text("Of comes later in /lab 1 instance would be admitted now, not 0")
    expect(button(what_if, "Change it")).to_be_enabled()
    hesitate(view, "Change it")
    button(what_if, "As it is").click()

    expect(what_if).to_contain_text("the pool itself does not change")
    assert before == stage.pool_config("lab")


def test_a_job_is_found_by_keys_alone(stage: Stage, visit: Visit) -> None:
    """A slash opens the search, from any place on the page; in a field it is a letter."""
    stage.full_pool("hidden")
    jobs = {name: stage.submit(name, pool="hidden", cpu=1) for name in ("sought first", "sought second")}
    view = visit("/jobs")
    view.get_by_label("Owner", exact=True).press("/")
    expect(view.get_by_label("Owner", exact=True)).to_have_value("/")
    view.get_by_label("Owner", exact=True).press("Backspace")
    view.get_by_role("heading", level=1).click()

    view.keyboard.press("/")
    view.keyboard.type("sought")
    options = view.get_by_role("listbox", name="Found").get_by_role("option")
    expect(options).to_have_count(2)
    expect(options.first).to_have_attribute("aria-selected", "true")
    view.keyboard.press("ArrowDown")
    expect(options.last).to_have_attribute("aria-selected", "true")
    name = (options.last.text_content() or "").rpartition(" in /hidden")[0]
    view.keyboard.press("Enter")

    expect(view.get_by_role("heading", level=1)).to_have_text(name)
    assert f"/jobs/{jobs[name]}" == urlsplit(view.url).path
    view.keyboard.type("/hosts\n")  # faster than any answer
    expect(view.get_by_role("heading", level=1)).to_have_text("Hosts")


def test_the_theme_is_chosen_and_kept(visit: Visit) -> None:
    """The theme applies to the page, and to all pages that are opened later."""
    view = visit("/")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = view.evaluate(ground)

    view.get_by_label("Theme").select_option("dark")
    dark = view.evaluate(ground)
    view.reload()

    assert light != dark
    assert dark == view.evaluate(ground)
    expect(view.get_by_label("Theme")).to_have_value("dark")


def test_a_line_is_copied(visit: Visit) -> None:
    """The copied line is the one on the page; when the browser permits no clipboard, it is selected."""
    allowed, refused = visit("/jobs", "clipboard-read", "clipboard-write"), visit("/jobs")

    for view in (allowed, refused):
        view.get_by_text("The same from a terminal").last.click()
    refused.evaluate("() => Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    for view in (allowed, refused):
        button(view, "Copy peloton job table").click()

    # The button's text meanwhile disappears too soon for a slow machine.
    allowed.wait_for_function("async () => (await navigator.clipboard.readText()) === 'peloton job table'")
    refused.wait_for_function("() => getSelection().toString() === 'peloton job table'")


UNKNOWN = {
    "/jobs/7b0e0000-0000-4000-8000-00000000ffff": ("There is no job 7b0e", "All jobs", "/jobs"),
    "/jobs/nonsense": ("There is no job nonsense", "All jobs", "/jobs"),
    "/services/7b0e0000-0000-4000-8000-00000000ffff": ("There is no service 7b0e", "All services", "/services"),
    "/hosts/nowhere": ("There is no host nowhere", "All hosts", "/hosts"),
    "/pools/no/such": ("There is no pool /no/such", "All pools", "/pools"),
    "/nowhere": ("There is no such page", "Overview", "/"),
    "/jobs/%zz": ("There is no job %zz", "All jobs", "/jobs"),
}


@pytest.mark.parametrize("path", UNKNOWN)
def test_what_there_is_not_is_said_in_words_with_a_way_back(visit: Visit, path: str) -> None:
    """Unknown ids of jobs, services, hosts and pools, and unknown addresses, have a page with a link back."""
    title, link, target = UNKNOWN[path]
    view = visit(path)

    expect(view.get_by_role("heading", level=1)).to_contain_text(title)
    view.get_by_role("main").get_by_role("link", name=link).click()

    expect(view.get_by_role("main").get_by_role("alert")).to_have_count(0)
    assert target == urlsplit(view.url).path


@NIGHTLY
def test_pages_say_that_the_api_is_away_and_come_back(stage: Stage, browser: Browser) -> None:
    """Pages that are open say it, and pages that are opened meanwhile; also when role web itself stops and starts."""
    job = stage.running("stays")
    given = {
        "hosts/:name": stage.hosts()[0],
        "jobs/:id": job,
        "jobs/:id/:instance": "0",
        "services/:id": job,
        "pools/:path*": "batch",
    }
    with open_view(browser, f"{stage.url}/jobs/{job}") as page:
        view = page.view
        away = view.get_by_role("alert").filter(has_text="the api does not answer").first
        old = view.locator("header .stale-now").get_by_text(re.compile("as of"))
        stage.cluster.stop_part("api")
        expect(old).to_be_visible()
        expect(view.get_by_role("heading", level=1)).to_have_text("stays")
        for one in pages():
            view.goto(stage.url + one.address(given))
            expect(away).to_be_visible()
        view.goto(f"{stage.url}/jobs/{job}")
        expect(away).to_be_visible()

        stage.cluster.start_part("api")
        expect(view.get_by_role("heading", level=1)).to_have_text("stays")
        expect(view.get_by_role("region", name="Configuration")).to_contain_text("Each instance asks for")
        expect(view.get_by_role("alert")).to_have_count(0)

        stage.cluster.stop_part("web")
        expect(old).to_be_visible()
        stage.cluster.start_part("web")
        expect(view.get_by_text("Live", exact=True)).to_be_visible()
