"""Tests that press every button that changes something, and read the result from the cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, expect
from playwright.sync_api import Page as View

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.maintenance import maintenance_pb2
from peloton.api.v0.respool import respool_pb2
from tests.browser.conftest import Visit
from tests.browser.stage import FOREVER, Stage
from tests.browser.views import NARROW, button, confirm, hesitate, open_view, rows
from tests.e2e.local import bound_to
from tests.e2e.service import Service
from tests.nightly import NIGHTLY

pytestmark = pytest.mark.xdist_group("stories")
ONCE = "echo out of run; echo trouble >&2"
FAILS_ONCE = "[ -e {mark} ] && {{ echo second; exec sleep 100000; }}; touch {mark}; echo first; exit 3"
PAGE_OF_SERVICES = 50
PAGE_OF_INSTANCES = 50


def region(view: View, name: str) -> Locator:
    return view.get_by_role("region", name=name, exact=True)


def find_maintenance(stage: Stage, host: str) -> maintenance_pb2.HostMaintenance | None:
    hosts = stage.cluster.client.maintenance.Query(maintenance_pb2.QueryRequest(hostnames=[host])).hosts
    return hosts[0] if hosts else None


def test_a_drain_that_is_late_is_forced(stage: Stage, visit: Visit) -> None:
    """The button appears once the deadline has passed, without another event at that moment; the pod that its SLA held
    then leaves, and the host goes down.
    """
    service = Service(stage.cluster, stage.pool("web"), 2, FOREVER, name="held", sla={"maximumUnavailableInstances": 1})
    service.create().wait_running()
    service.memory_mb = 4_000  # no host has as much
    service.replace(batch_size=1)
    service.wait(lambda: service.away() == 1, "one that is away, as many as may be")
    host = service.pods()[next(instance for instance, state in service.states().items() if state == "RUNNING")].host
    view = visit(f"/hosts/{host}")
    maintenance = region(view, "Maintenance")

    start = maintenance_pb2.StartRequest(hostnames=[host], deadline_seconds=5, reason="new disks")
    stage.cluster.client.maintenance.Start(start)
    expect(maintenance.get_by_role("listitem").filter(has_text="held")).to_contain_text("keeps 1 pod")
    hesitate(view, "Force")
    found = find_maintenance(stage, host)
    assert found is not None
    assert not found.forced
    confirm(view, "Force")

    expect(maintenance).to_contain_text("forced")
    expect(view.locator(".facts .state").first).to_contain_text("down")
    found = find_maintenance(stage, host)
    assert found is not None
    assert found.forced
    service.abort()
    confirm(view, "Complete")
    expect(maintenance.get_by_text("The host is in service.")).to_be_visible()


def test_a_plan_of_a_drain_is_made_again_and_left(stage: Stage, visit: Visit) -> None:
    """Jobs that arrive meanwhile are in the next plan; to close it leaves the host in service."""
    host = stage.hosts()[0]
    view = visit(f"/hosts/{host}")
    maintenance = region(view, "Maintenance")
    button(view, "Plan a drain").click()
    expect(maintenance.get_by_role("table")).to_be_visible()
    stage.running("comes meanwhile", task=bound_to("hostname", host))
    expect(rows(maintenance).filter(has_text="comes meanwhile")).to_have_count(0)

    button(maintenance, "Plan again").click()
    expect(rows(maintenance).filter(has_text="comes meanwhile")).to_have_count(1)
    button(maintenance, "Leave it as it is").click()

    expect(maintenance.get_by_role("table")).to_have_count(0)
    expect(button(view, "Plan a drain")).to_be_visible()
    assert find_maintenance(stage, host) is None


def test_a_pool_is_changed(stage: Stage, visit: Visit) -> None:
    """Pods that waited for the pool's limit run; the page continues from the new configuration."""
    stage.full_pool("grows")
    job = stage.submit("comes later", pool="grows", cpu=1)
    view = visit("/pools/grows")
    what_if = region(view, "What if")

    what_if.get_by_label("Limit").press("ArrowRight")
    confirm(view, "Change it")

    expect(what_if).to_contain_text("the pool itself does not change")
    expect(what_if.get_by_label("Limit")).to_have_attribute("aria-valuetext", "2 cores")
    expect(view.get_by_role("img", name=re.compile("limit 2 cores"))).to_be_visible()
    assert (2, 1) == limit_and_share(stage, "grows")
    stage.cluster.wait(lambda: stage.cluster.counts(job) == {"RUNNING": 1}, "the job that had waited")
    what_if.get_by_label("Share").press("ArrowRight")
    confirm(view, "Change it")
    expect(what_if.get_by_label("Share")).to_have_attribute("aria-valuetext", "2")
    assert (2, 2) == limit_and_share(stage, "grows")


def test_a_pool_is_deleted(stage: Stage, visit: Visit) -> None:
    """The button asks first, deletes the pool, and leads to the other pools."""
    pool = stage.pool("goes")
    view = visit("/pools/goes")

    hesitate(view, "Delete")
    confirm(view, "Delete")

    expect(view).to_have_url(re.compile("/pools$"))
    found = stage.cluster.client.respools.Query(respool_pb2.QueryRequest()).resourcePools
    assert pool not in {one.id.value for one in found}
    del stage.pools["goes"]


def limit_and_share(stage: Stage, pool: str) -> tuple[float, float]:
    """Return limit and share of cpu."""
    cpu = next(one for one in stage.pool_config(pool).resources if one.kind == "cpu")
    return cpu.limit, cpu.share


def test_a_whole_job_is_restarted(stage: Stage, visit: Visit) -> None:
    """All instances of a restarted job have a second run."""
    job = stage.running("again", count=2)
    view = visit(f"/jobs/{job}")

    hesitate(view, "Restart job")
    assert {0: 1, 1: 1} == stage.cluster.run_ids(job)
    confirm(view, "Restart job")

    stage.cluster.wait(lambda: stage.cluster.run_ids(job) == {0: 2, 1: 2}, "a second run of both")
    expect(rows(region(view, "Instances as a table")).filter(has_text="running")).to_have_count(2)
    expect(view.locator(".facts .state").first).to_contain_text("running")


def test_one_instance_is_stopped_and_started(stage: Stage, visit: Visit) -> None:
    """The others continue to run. A restart would not run a stopped one, so there is another button for it."""
    job = stage.running("pair", count=2)
    view = visit(f"/jobs/{job}?instance=1")
    instance = region(view, "Instance 1")
    expect(button(instance, "Restart instance")).to_be_visible()

    confirm(view, "Stop instance")
    expect(instance.locator(".facts .state")).to_contain_text("killed")
    assert {"RUNNING": 1, "KILLED": 1} == stage.cluster.counts(job)
    for gone in ("Stop instance", "Restart instance"):
        expect(button(instance, gone)).to_have_count(0)
    confirm(view, "Start instance")

    expect(instance.locator(".facts .state")).to_contain_text("running")
    expect(button(instance, "Stop instance")).to_be_visible()
    assert {0: 1, 1: 2} == stage.cluster.run_ids(job)


def test_a_job_that_has_ended_is_run_again(stage: Stage, visit: Visit) -> None:
    """A job that has ended runs again as another job of the same file and pool, which is shown before it is created."""
    given: dict[str, Any] = {"owningTeam": "analytics", "labels": [{"key": "month", "value": "june"}]}
    job = stage.submit("nightly report", ONCE, count=2, **given)
    assert "SUCCEEDED" == stage.cluster.finish(job)
    view = visit(f"/jobs/{job}")

    expect(button(view, "Restart job")).to_have_count(0)
    view.get_by_role("link", name="Run again").click()
    expect(view.locator(".faults")).to_contain_text("The job nightly report, 2 instances")
    confirm(view, "Create")

    view.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}$"))
    expect(view.get_by_role("heading", level=1)).to_have_text("nightly report")
    again = view.url.rpartition("/")[2]
    assert job != again
    assert "SUCCEEDED" == stage.cluster.finish(again)
    assert config_of(stage, job) == config_of(stage, again)


def config_of(stage: Stage, job: str) -> job_pb2.JobConfig:
    """Return the configuration as it was sent."""
    config = stage.cluster.client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=job))).jobInfo.config
    config.ClearField("changeLog")
    return config


def test_a_service_is_restarted_stopped_and_started(stage: Stage, visit: Visit) -> None:
    """A service restarts in batches, from its own page; a stopped one starts from both of its pages."""
    service = Service(stage.cluster, stage.pool("web"), 2, FOREVER, name="kiosk").create().wait_running()
    view, instances = visit(f"/services/{service.id}"), visit(f"/jobs/{service.id}")
    state = view.locator(".facts .state").first
    rollout = region(view, "Rollout")

    button(view, "Restart service").click()
    view.get_by_role("dialog").get_by_label("At a time").fill("1")
    button(view.get_by_role("dialog"), "Restart service").click()
    expect(rollout).to_contain_text("batches of 1: 2 of 2 done")
    expect(rollout.locator(".state")).to_contain_text("succeeded")
    assert {0: 2, 1: 2} == service.runs()

    hesitate(view, "Stop service")
    for page, name in ((view, "service"), (instances, "job")):
        confirm(view, "Stop service")
        expect(state).to_contain_text("killed")
        assert {"KILLED": 2} == stage.cluster.counts(service.id)
        expect(button(view, "Restart service")).to_have_count(0)
        confirm(page, f"Start {name}")
        expect(state).to_contain_text("running")
        service.wait_running()


def test_versions_are_called_by_one_number(stage: Stage, visit: Visit) -> None:
    """Service, pods, rollout and history show the same version number; any two versions are compared."""
    service = Service(stage.cluster, stage.pool("web"), 1, FOREVER, name="stall").create().wait_running()
    view = visit(f"/services/{service.id}")
    history = region(view, "History")
    expect(view.locator(".facts").first).to_contain_text("version 1")
    for seconds in (200_000, 300_000):
        service.replace(f"exec sleep {seconds}", batch_size=1)
        service.wait_update("SUCCEEDED")

    expect(view.locator(".facts").first).to_contain_text("version 3")
    expect(region(view, "Rollout").get_by_role("heading")).to_have_text("Update to version 3")
    expect(region(view, "Versions side by side").locator("h3")).to_have_text(["Version 3"])
    expect(rows(region(view, "Pods")).locator("td:nth-child(4)")).to_have_text(["3"])
    expect(rows(history).locator("td:nth-child(4)")).to_have_text(["3", "2", "1"])
    expect(history.get_by_role("button", name="Roll back to version 1")).to_be_visible()
    history.get_by_label(re.compile("^from")).select_option("1")
    expect(history.locator(".diff .removed").filter(has_text="exec sleep 100000").first).to_be_visible()
    history.get_by_label(re.compile("^to")).select_option("2")
    expect(history.locator(".diff .added").filter(has_text="exec sleep 200000").first).to_be_visible()
    assert not re.search(r"\b\d+-\d+-\d+\b", view.get_by_role("main").inner_text().replace(service.id, ""))


def test_the_log_of_an_earlier_run_is_read(stage: Stage, visit: Visit, tmp_path: Path) -> None:
    """The log of a run that failed before the next one is shown."""
    command = FAILS_ONCE.format(mark=tmp_path / "was-there")
    job = stage.submit("second try", command, task={"restartPolicy": {"maxFailures": 2}})
    stage.cluster.wait(lambda: stage.cluster.counts(job) == {"RUNNING": 1}, "its second run")
    view = visit(f"/jobs/{job}?instance=0")
    log = view.get_by_label("stdout of instance 0")

    expect(log).to_contain_text("second")
    view.get_by_role("combobox", name="Run", exact=True).select_option(label="1")
    view.get_by_label("File").select_option("stdout")
    expect(log).to_contain_text("first")
    expect(region(view, "Configuration")).to_contain_text("run again when it fails, until it has failed 2 times")
    expect(view.get_by_text("The run has ended")).to_be_visible()


def test_instances_are_turned_page_by_page_and_chosen(stage: Stage, visit: Visit) -> None:
    """An instance is found by its number, in the grid by click and by arrows."""
    stage.full_pool("long")
    view = visit(f"/jobs/{stage.submit('long', pool='long', count=PAGE_OF_INSTANCES + 3, cpu=1)}")
    table = region(view, "Instances as a table")
    expect(rows(table)).to_have_count(PAGE_OF_INSTANCES)
    button(table, "Next").click()
    expect(rows(table)).to_have_count(3)
    expect(button(table, "Next")).to_be_disabled()
    button(table, "Previous").click()
    expect(rows(table)).to_have_count(PAGE_OF_INSTANCES)

    view.get_by_label("Instance", exact=True).and_(view.locator("input")).fill("7")
    view.keyboard.press("Enter")
    expect(region(view, "Instance 7")).to_be_visible()
    view.get_by_role("slider", name="Instance").press("ArrowRight")
    expect(region(view, "Instance 8")).to_be_visible()
    view.get_by_role("slider", name="Instance").click(position={"x": 4, "y": 4})
    expect(region(view, "Instance 0")).to_be_visible()
    assert view.url.endswith("?instance=0")


def test_hosts_are_sorted_filtered_and_opened_from_the_map(stage: Stage, visit: Visit) -> None:
    """Order and filters are in the address."""
    names = stage.hosts()
    view = visit("/hosts")
    table = view.get_by_role("table", name="Each host")
    expect(rows(table).locator("td:first-child")).to_have_text(names)

    button(table, "Pods").click()
    expect(table.get_by_role("columnheader", name="Pods")).to_have_attribute("aria-sort", "descending")
    pods = [int(text) for text in rows(table).locator("td:nth-child(3)").all_text_contents()]
    assert sorted(pods, reverse=True) == pods
    view.get_by_role("combobox", name="State", exact=True).select_option("DOWN")
    expect(rows(table)).to_have_count(0)
    view.get_by_role("combobox", name="State", exact=True).select_option("UP")
    view.get_by_label("Name", exact=True).fill(names[1])
    expect(rows(table).locator("td:first-child")).to_have_text(names[1:2])
    view.reload()
    expect(rows(table).locator("td:first-child")).to_have_text(names[1:2])
    view.get_by_role("img", name=re.compile("of 1 host")).click(position={"x": 3, "y": 3})
    expect(view.get_by_role("heading", level=1)).to_have_text(names[1])


def test_services_are_turned_page_by_page(stage: Stage, visit: Visit) -> None:
    """Services are listed newest first; Back leads to the previous page."""
    names = [f"one of many {number}" for number in range(PAGE_OF_SERVICES + 2)]
    stage.store_ended(names, "many", type="SERVICE")
    view = visit("/services")
    view.get_by_label("Name", exact=True).fill("one of many")
    view.keyboard.press("Enter")
    expect(rows(view)).to_have_count(PAGE_OF_SERVICES)

    view.get_by_role("link", name="Older").click()
    expect(rows(view)).to_have_count(2)
    view.get_by_role("link", name="Newer").click()
    expect(rows(view)).to_have_count(PAGE_OF_SERVICES)
    view.go_back()
    expect(rows(view)).to_have_count(2)


def test_pools_below_another_are_folded(stage: Stage, visit: Visit) -> None:
    """Pools below another are folded and unfolded."""
    stage.pool("branch")
    twig = respool_pb2.ResourcePoolConfig(name="twig", parent=peloton_pb2.ResourcePoolID(value=stage.pools["branch"]))
    twig.resources.add(kind="cpu", limit=1, share=1)
    answer = stage.cluster.client.respools.CreateResourcePool(respool_pb2.CreateRequest(config=twig))
    assert not answer.HasField("error"), answer.error
    view = visit("/pools")
    tree = view.get_by_role("list", name="Pools, CPU")
    expect(tree.get_by_role("link", name="twig")).to_be_visible()

    button(tree, "Pools below /branch").click()
    expect(tree.get_by_role("link", name="twig")).to_have_count(0)
    button(tree, "Pools below /branch").click()
    expect(tree.get_by_role("link", name="twig")).to_be_visible()


def test_the_search_is_opened_and_closed_by_its_buttons(stage: Stage, visit: Visit) -> None:
    """A hit is taken by a click."""
    view = visit("/jobs")
    box = view.get_by_role("combobox", name="Search")
    view.get_by_role("button", name="Search").click()
    expect(box).to_be_focused()
    button(view.get_by_role("dialog", name="Search"), "Close").click()
    expect(box).to_be_hidden()
    view.get_by_role("button", name="Search").click()
    box.fill(stage.hosts()[0])
    view.get_by_role("option", name=stage.hosts()[0]).click()
    expect(view.get_by_role("heading", level=1)).to_have_text(stage.hosts()[0])


def test_a_page_whose_code_is_away_is_loaded_again(visit: Visit) -> None:
    """A page whose code cannot be loaded shows a message, and a button that loads it again."""
    view = visit("/jobs")
    view.route("**/assets/hosts-*.js", lambda route: route.abort())
    view.get_by_role("link", name="Hosts").click()
    expect(view.get_by_role("alert")).to_contain_text("This page could not be loaded")
    view.unroute("**/assets/hosts-*.js")
    button(view, "Load it again").click()
    expect(view.get_by_role("heading", level=1)).to_have_text("Hosts")


LONG_POOL, LONG_NAME = "a?b#c%41 " + "long" * 40, "<b>x</b> & " + "w" * 200


def run_with_long_names(stage: Stage) -> str:
    labels = [{"key": "k" * 100, "value": "v" * 100}]
    return stage.running(LONG_NAME, pool=LONG_POOL, cpu=0.01, labels=labels)


def test_strange_and_long_names_are_shown_whole(stage: Stage, visit: Visit) -> None:
    """Links with such names lead to their pages and push nothing out of sight; the smallest amounts are shown."""
    pool, name = LONG_POOL, LONG_NAME
    run_with_long_names(stage)
    nameless = stage.running("   ", pool=pool, cpu=0.01)
    view = visit("/jobs?age=1h")
    expect(view.get_by_role("columnheader", name="Created")).to_be_in_viewport(ratio=1)
    expect(view.get_by_role("link", name=nameless)).to_be_visible()
    view.get_by_role("link", name=name, exact=True).click()
    expect(view.get_by_role("heading", level=1)).to_have_text(name)
    expect(region(view, "Configuration")).to_contain_text("asks for 0.01 cores")
    view.get_by_role("main").get_by_role("link", name=f"/{pool}", exact=True).click()
    expect(view.get_by_role("heading", level=1)).to_have_text(pool)


@NIGHTLY
def test_long_names_break_no_narrow_screen(stage: Stage, browser: Browser) -> None:
    """No page with one of them scrolls sideways."""
    job, pool_path = run_with_long_names(stage), f"/pools/{quote(LONG_POOL)}"
    sticks_out = {}
    for path in ("/", "/jobs", f"/jobs/{job}?instance=0", "/pools", pool_path, f"/hosts/{stage.hosts()[0]}"):
        with open_view(browser, stage.url + path, size=NARROW) as page:
            page.unfold()
            sticks_out[path] = page.sticks_out()
    assert {} == {path: why for path, why in sticks_out.items() if why}
