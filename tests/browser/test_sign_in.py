"""The story of viewers who sign in to the pages at an issuer, see what they may, and sign out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect
from playwright.sync_api import Page as View

from services.web.sign_in import SESSION
from tests.browser.views import TIMEOUT_MS, button, rows
from tests.e2e.local import Cluster, shell
from tests.e2e.people import cluster_of, register
from tests.issuer import serve_issuer

pytestmark = pytest.mark.xdist_group("sign-in")
ANN, BEN = "ann@x.org", "ben@x.org"
"""Ann may read /eng; Ben may read it, and change jobs in /ads."""
ROLES = {ANN: {"/eng": "reader"}, BEN: {"/eng": "reader", "/ads": "submitter"}}
FOREVER = shell("exec sleep 100000", cpu=0.1)


@dataclass(frozen=True)
class Site:
    cluster: Cluster
    jobs: dict[str, str]

    def address(self, path: str) -> str:
        return f"{self.cluster.local.web_url}{path}"


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("pages")
    with serve_issuer(users={ANN: (), BEN: ()}) as issuer:
        names = {"PELOTON_AUTH_OIDC_ISSUER": issuer.address, "PELOTON_AUTH_OIDC_AUDIENCE": issuer.client_id}
        with cluster_of(register(folder, ROLES), web=True, **names) as cluster:
            jobs = {}
            for pool in ("eng", "ads"):
                found = cluster.pool(pool, own_cpu=1)
                jobs[pool] = cluster.submit(found, name=f"job of {pool}", instanceCount=1, defaultConfig=FOREVER)
            yield Site(cluster, jobs)


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Yield a browser without cookies."""
    expect.set_options(timeout=TIMEOUT_MS)
    context = browser.new_context(locale="en-GB")
    context.set_default_timeout(TIMEOUT_MS)
    yield context
    context.close()


def sign_in(context: BrowserContext, site: Site, path: str, user: str) -> View:
    """Open a page, and sign in where it asks for that."""
    view = context.new_page()
    view.goto(site.address(path))
    expect(view.get_by_role("heading", name="Sign in to Peloton")).to_be_visible()
    view.get_by_role("link", name="Sign in", exact=True).click()
    view.get_by_role("link", name=f"Continue as {user}").click()
    expect(view).to_have_url(site.address(path))
    return view


def test_a_viewer_sees_what_it_may_until_it_signs_out(context: BrowserContext, site: Site) -> None:
    """A copy of the cookie shows nothing after the sign-out, and a page of another pool nothing before it."""
    view = sign_in(context, site, "/jobs", ANN)
    expect(rows(view)).to_have_count(1)
    expect(rows(view)).to_contain_text("job of eng")
    for path in ("/pools/ads", f"/jobs/{site.jobs['ads']}"):
        view.goto(site.address(path))
        expect(view.get_by_role("main")).to_contain_text("it needs role reader on pool '/ads'")

    view.goto(site.address(f"/jobs/{site.jobs['eng']}"))
    stop = button(view, "Stop job")
    expect(stop).to_be_disabled()
    expect(stop).to_have_attribute("title", "You have no role that changes something.")

    kept = [one for one in context.cookies() if one.get("name") == SESSION]
    button(view, "Sign out").click()
    expect(view.get_by_role("heading", name="Sign in to Peloton")).to_be_visible()
    assert [] == [one for one in context.cookies() if one.get("name") == SESSION]
    context.add_cookies([{"name": SESSION, "value": kept[0]["value"], "url": site.address("/")}])
    view.goto(site.address("/jobs"))
    expect(view.get_by_role("heading", name="Sign in to Peloton")).to_be_visible()


def test_a_refused_action_says_which_role_it_needs(context: BrowserContext, site: Site) -> None:
    """A user of another pool sees the rule, and the job runs on."""
    view = sign_in(context, site, f"/jobs/{site.jobs['eng']}", BEN)
    button(view, "Stop job").click()
    dialog = view.get_by_role("dialog")
    button(dialog, "Stop job").click()
    expect(dialog.get_by_role("alert")).to_contain_text("it needs role submitter on pool '/eng'")
    site.cluster.wait(lambda: site.cluster.counts(site.jobs["eng"]) == {"RUNNING": 1}, "the job runs")


def test_a_sign_in_that_is_denied_says_so(context: BrowserContext, site: Site) -> None:
    """The page offers to try again."""
    view = context.new_page()
    view.goto(site.address("/jobs"))
    view.get_by_role("link", name="Sign in", exact=True).click()
    view.get_by_role("link", name="Deny").click()
    expect(view.get_by_role("alert")).to_contain_text("the issuer refuses: access_denied")
    expect(view.get_by_role("link", name="Sign in", exact=True)).to_be_visible()
