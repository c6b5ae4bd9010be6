"""The page on which users write, plan and create jobs, services and pools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, FilePayload, Locator, Route, expect

from peloton.api.config_bounds import POOL_KINDS
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from tests.browser.views import TIMEOUT_MS, Opened, open_view
from tests.browser.world import JOBS, World
from tests.present import require

pytestmark = pytest.mark.xdist_group("browser")
POOL = "/data"
JOB = """\
name: {name}
instancecount: 2
sla: {{preemptible: true}}
defaultconfig:
  command: {{shell: true, value: sleep 1}}
"""
ENTER_AFTER_MS = 100
SERVICE = """\
name: bakery
instancecount: 3
sla: {preemptible: true}
defaultspec:
  containers:
    - {name: oven, resource: {cpulimit: 0.5}, entrypoint: {value: sleep 100000}}
"""
UUID = r"[0-9a-f-]{36}"


class Form:
    """Form of the page. ``kind``: job, service or pool."""

    def __init__(self, page: Opened, kind: str) -> None:
        self.page = page
        self.view = page.view
        self.text = self.view.get_by_role("textbox", name=f"YAML of the {kind}")
        self.faults = self.view.locator(".faults")
        self.options = self.view.get_by_role("listbox", name="Completions").get_by_role("option")

    def write(self, text: str) -> None:
        """Replace the text, as by a paste."""
        self.clear()
        self.view.keyboard.insert_text(text)

    def clear(self) -> None:
        self.text.click()
        self.view.keyboard.press("ControlOrMeta+A")
        self.view.keyboard.press("Delete")

    def button(self, name: str) -> Locator:
        return self.view.get_by_role("button", name=name, exact=True)

    def take(self, option: str) -> None:
        """Choose the option by Enter, once it is the only one; the editor ignores Enter for an option that has just
        appeared.
        """
        expect(self.options).to_have_count(1)
        expect(self.options).to_contain_text(option)
        self.view.wait_for_timeout(ENTER_AFTER_MS)
        self.view.keyboard.press("Enter")

    def confirm(self) -> Locator:
        """Press the button in the question that Create asks."""
        self.button("Create").first.click()
        return self.view.get_by_role("dialog").get_by_role("button", name="Create")


@contextmanager
def form(browser: Browser, world: World, kind: str, **given: str) -> Iterator[Form]:
    address = "&".join([f"kind={kind}", *(f"{name}={value}" for name, value in given.items())])
    with open_view(browser, f"{world.url}/submit?{address}") as page:
        expect.set_options(timeout=TIMEOUT_MS)
        yield Form(page, kind)


def jobs_named(world: World, name: str) -> list[str]:
    found = world.cluster.client.jobs.Query(job_pb2.QueryRequest(spec=job_pb2.QuerySpec(name=name)))
    return [one.id.value for one in found.results if one.name == name]


def test_a_job_is_typed_planned_and_created_once(shown: World, browser: Browser) -> None:
    """A fault is shown at its place while the user types, and disappears; a double click on Create creates one job."""
    with form(browser, shown, "job", pool=POOL) as page:
        expect(page.faults).to_contain_text("The job hello, 10 instances")  # the example
        page.clear()
        page.view.keyboard.type("name: typed\ninstancecont: 2", delay=5)
        expect(page.faults).to_contain_text(
            "Line 2, column 1: unknown key 'instancecont' (did you mean 'instancecount'?)"
        )
        expect(page.button("Plan")).to_be_disabled()
        expect(page.button("Create").first).to_be_disabled()
        page.write(JOB.format(name="typed"))
        expect(page.faults).to_contain_text("The job typed, 2 instances")

        page.button("Plan").click()
        expect(page.view.get_by_role("region", name="Plan")).to_contain_text(
            f"2 of 2 instances would be admitted now in {POOL}"
        )
        expect(page.view.get_by_role("region", name="Plan")).to_contain_text("free resources for all of these now")
        assert "" == page.page.axe()
        create = page.confirm()
        expect(page.view.get_by_role("dialog")).to_contain_text("By its plan: 2 of 2 instances would be admitted now")
        create.dblclick()

        page.view.wait_for_url(re.compile(f"/jobs/{UUID}$"))
        expect(page.view.get_by_role("heading", level=1)).to_have_text("typed")
        assert [] == [fault for fault in page.page.faults if "/files/" not in fault]
        assert [page.view.url.rpartition("/")[2]] == jobs_named(shown, "typed")


def test_a_daemon_is_planned(shown: World, browser: Browser) -> None:
    """The plan of a daemon shows the matching hosts, which determine the number of its instances."""
    with form(browser, shown, "job", pool=POOL) as page:
        own = "resource: {cpuLimit: 0.001, memLimitMb: 1}\n  command: {value: run}"
        page.write(f"name: agent\ntype: DAEMON\ndefaultConfig:\n  {own}\n")
        page.button("Plan").click()
        plan = page.view.get_by_role("region", name="Plan")
        expect(plan).to_contain_text("would not be queued: hosts decide where it runs")
        expect(plan.get_by_role("img", name=re.compile(r"Hosts: \d+ of \d+ hosts match"))).to_be_visible()
        assert "" == page.page.axe()
        page.confirm()
        expect(page.view.get_by_role("dialog")).to_contain_text("By its plan: a daemon: ")


def test_a_service_is_planned_and_created(shown: World, browser: Browser) -> None:
    """A service of one instance at a time is planned and created."""
    with form(browser, shown, "service", pool="/web") as page:
        expect(page.faults).to_contain_text("The service web, 3 instances")  # the example
        page.write(SERVICE)
        expect(page.faults).to_contain_text("The service bakery, 3 instances")
        page.view.get_by_label("Add at a time").fill("1")
        page.button("Plan").click()
        expect(page.view.get_by_role("region", name="Plan")).to_contain_text(
            "3 of 3 instances would be admitted now in /web"
        )
        page.confirm().click()

        page.view.wait_for_url(re.compile(f"/services/{UUID}$"))
        expect(page.view.get_by_role("heading", level=1)).to_have_text("bakery")


def test_a_pool_is_planned_and_created_below_another(shown: World, browser: Browser) -> None:
    """A refused pool is reported in the dialog that creates it, and the text is kept."""
    with form(browser, shown, "pool", parent="/ml") as page:
        page.write("name: fresh\nresources:\n  - {kind: cpu, reservation: 1000000, limit: 1000000, share: 1}\n")
        expect(page.faults).to_contain_text("The pool fresh")
        page.confirm().click()
        expect(page.view.get_by_role("dialog").get_by_role("alert")).to_contain_text("Invalid resource pool config")
        page.view.get_by_role("button", name="Leave it as it is").click()
        expect(page.text).to_contain_text("reservation: 1000000")

        page.write("name: fresh\nresources:\n  - {kind: cpu, limit: 2, share: 1}\n")
        expect(page.faults).to_contain_text("The pool fresh")
        page.button("Plan").click()
        expect(page.view.get_by_role("region", name="Plan")).to_contain_text("/ml/fresh would be a new pool.")
        page.confirm().click()
        page.view.wait_for_url(re.compile("/pools/ml/fresh$"))
    path = respool_pb2.ResourcePoolPath(value="/ml/fresh")
    assert shown.cluster.client.respools.LookupResourcePoolID(respool_pb2.LookupRequest(path=path)).id.value


def test_keys_and_values_are_completed(shown: World, browser: Browser) -> None:
    """The completion at the cursor offers missing keys with their meaning, and names of values."""
    with form(browser, shown, "job") as page:
        page.clear()
        page.view.keyboard.type("name: a\ndefaultc", delay=5)
        page.take("defaultconfig")
        expect(page.text).to_contain_text("defaultconfig:")
        expect(page.options.filter(has_text="resource")).to_be_visible()
        page.view.keyboard.type("resou", delay=5)
        page.take("resource")
        expect(page.options.filter(has_text="cpulimit")).to_be_visible()
        page.view.keyboard.type("cpul", delay=5)
        page.take("cpulimit")
        page.view.keyboard.type("-1")
        wanted = ["name: a", "defaultconfig:", "  resource:", "    cpulimit: -1"]
        assert wanted == page.view.locator(".cm-line").all_inner_texts()
        expect(page.faults).to_contain_text("Line 4, column 15: defaultconfig.resource.cpulimit: -1 is too small")
        assert "" == page.page.axe()


def test_what_is_completed_depends_on_the_place(shown: World, browser: Browser) -> None:
    """The completion offers keys of the mapping at this indentation, without the existing ones; none in free text."""
    amounts = ["cpulimit", "disklimitmb", "extended", "fdlimit", "gpulimit", "memlimitmb"]
    with form(browser, shown, "job") as page:
        for text, wanted in (
            ("labels:\n  - key: a\n    |", ["value"]),
            ("labels:\n- key: a\n- |", ["key", "value"]),
            ("labels: [{key: a, |}]", ["value"]),
            ("labels:\n  |", ["-"]),
            ("default_config:\n  resource:\n    |\n  command: {}", amounts),
            ("instanceconfig:\n  7: {resource: {gpuLimit: 1, |}}", [one for one in amounts if one != "gpulimit"]),
            ("sla:\n  priority: 1\ntype: |", ["BATCH", "SERVICE", "DAEMON"]),
            ("defaultconfig:\n  controller: |", ["true", "false"]),
            ("name: |", []),
            ("# labels|", []),
            ("name: 'lab|'", []),
        ):
            before, after = text.split("|")
            page.write(before + after)
            for _ in after:
                page.view.keyboard.press("ArrowLeft")
            page.view.keyboard.press("Control+Space")
            if not wanted:
                page.view.wait_for_timeout(ENTER_AFTER_MS)  # for options that are not to come
            expect(page.options.locator(".cm-completionLabel")).to_have_text(wanted)
            page.view.keyboard.press("Escape")


def test_a_line_begins_where_the_one_before_it_says(shown: World, browser: Browser) -> None:
    """A new line below a key without a value is indented."""
    with form(browser, shown, "job") as page:
        page.clear()
        for line in ("sla:", "priority: 1", "revocable: false"):
            page.view.keyboard.insert_text(line)
            page.view.keyboard.press("Enter")
        page.view.keyboard.press("Shift+Tab")
        page.view.keyboard.insert_text("name: a")
        wanted = ["sla:", "  priority: 1", "  revocable: false", "name: a"]
        assert wanted == page.view.locator(".cm-line").all_inner_texts()


def test_values_of_a_pool_are_completed_in_braces(shown: World, browser: Browser) -> None:
    """The completion offers kinds of resources in a list."""
    with form(browser, shown, "pool") as page:
        page.clear()
        page.view.keyboard.insert_text("name: a\nresources:\n  - {share: 1, kind: ")
        page.view.keyboard.press("Control+Space")
        expect(page.options).to_have_text(list(POOL_KINDS))


def test_a_lost_answer_is_repeated_with_the_same_id(shown: World, browser: Browser) -> None:
    """The same id is sent again, also after the page was loaded again: the text is kept, and one job was created."""
    asked: list[str] = []

    def lose(route: Route) -> None:
        asked.append(require(route.request.post_data_json)["id"]["value"])
        if len(asked) == 1:
            route.fetch()
            route.abort()
        else:
            route.continue_()

    with form(browser, shown, "job", pool=POOL) as page:
        page.view.route("**/api/peloton.api.v0.job.JobManager/Create", lose)
        page.write(JOB.format(name="lost"))
        page.confirm().click()
        alert = page.view.get_by_role("dialog").get_by_role("alert")
        expect(alert).to_contain_text("Whether it was created is not known")
        page.view.reload()
        expect(page.text).to_contain_text("name: lost")
        page.confirm().click()
        page.view.wait_for_url(re.compile(f"/jobs/{UUID}$"))
    assert [asked[0]] * 2 == asked
    assert asked[:1] == jobs_named(shown, "lost")


@pytest.mark.parametrize(
    ("name", "link", "count", "pool"),
    [("train", "edit and submit again", 120, "/ml/training"), ("nightly", "Run again", 30, "/data")],
)
def test_a_job_is_edited_and_submitted_again(
    shown: World, browser: Browser, name: str, link: str, count: int, pool: str
) -> None:
    """The page of a running or ended job opens the editor with the file that created the job, and with its pool."""
    with open_view(browser, f"{shown.url}/jobs/{JOBS[name]}") as page:
        page.view.get_by_role("link", name=link).click()
        again = Form(page, "job")
        expect(again.faults).to_contain_text(f"The job {name}, {count} instances")
        expect(page.view.get_by_role("combobox", name="Pool")).to_have_value(pool)
        expect(again.text).not_to_contain_text("respool")
        assert "from" not in page.view.url


def test_what_cannot_be_asked_now_is_reported_and_asked_again(shown: World, browser: Browser) -> None:
    """An unavailable api is shown for the check of the text and for the plan, and both are retried; an unknown pool is
    shown as well.
    """
    away = {"code": "unavailable", "message": "the api does not answer"}
    with form(browser, shown, "job", pool="/nowhere") as page:
        expect(page.view.get_by_role("alert")).to_contain_text("unable to find resource pool /nowhere")
        page.view.get_by_role("combobox", name="Pool").fill(POOL)
        page.view.route("**/files/job", lambda route: route.abort())
        page.write(JOB.format(name="later"))
        expect(page.faults).to_contain_text("Not checked: Peloton does not answer")
        page.view.unroute("**/files/job")
        expect(page.faults).to_contain_text("The job later, 2 instances")

        page.view.route("**/JobPlan", lambda route: route.fulfill(status=503, json=away))
        page.button("Plan").click()
        expect(page.view.get_by_role("alert")).to_have_text("It cannot be planned: the api does not answer")
        page.view.unroute("**/JobPlan")
        page.button("Plan").click()
        expect(page.view.get_by_role("region", name="Plan")).to_contain_text("2 of 2 instances")


def test_the_editor_is_left_by_keys(shown: World, browser: Browser) -> None:
    """Tab indents; after Escape it moves to the element after the editor."""
    with form(browser, shown, "job") as page:
        page.clear()
        page.view.keyboard.press("Tab")
        expect(page.text).to_be_focused()
        page.view.keyboard.press("Escape")
        page.view.keyboard.press("Tab")
        expect(page.text).not_to_be_focused()


def test_a_file_is_opened_and_its_fault_found(shown: World, browser: Browser) -> None:
    """The text of the file replaces the draft, as an example does; a fault links to its line."""
    broken = FilePayload(name="job.yaml", mimeType="application/yaml", buffer=b"name: from a file\ninstances: 2\n")
    with form(browser, shown, "job", pool=POOL) as page:
        expect(page.faults).to_contain_text("The job hello, 10 instances")  # the example
        with page.view.expect_file_chooser() as chooser:
            page.button("Open a file").click()
        chooser.value.set_files(broken)
        expect(page.text).to_contain_text("name: from a file")

        page.button("Line 2, column 1").click()
        expect(page.text).to_be_focused()
        page.view.keyboard.press("Shift+End")
        page.view.keyboard.type("instancecount: 2")
        expect(page.faults).to_contain_text("The job from a file, 2 instances")
        page.view.get_by_label("Example").select_option(index=1)
        expect(page.text).not_to_contain_text("from a file")
