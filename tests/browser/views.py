"""Helpers of tests for an open page in a browser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, get_args
from urllib.parse import urljoin, urlsplit
from weakref import WeakKeyDictionary

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Locator, Request, ViewportSize, expect, sync_playwright
from playwright.sync_api import Page as View

from tests.browser.chromium import program
from tests.browser.pictures import Picture, Theme, take

LEAVE = "Leave it as it is"
"""The button of every question."""
THEMES: tuple[Theme, ...] = get_args(Theme)
SIZE = ViewportSize(width=1280, height=900)
NARROW = ViewportSize(width=360, height=800)
TIMEOUT_MS = 60_000
"""Timeout, generous for a busy machine; waiting ends at once when the element is there."""
STANDARD: dict[str, Any] = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
    "rules": {"heading-order": {"enabled": True}, "scrollable-region-focusable": {"enabled": True}},
    "resultTypes": ["violations"],
    "preload": False,
}
"""Headings in order are no criterion of WCAG, and what readers of a page by its headings go by. Style sheets and media
are not fetched again (``preload``), which only rules of sound and rotation need.
"""
NOTE_WHAT_IS_ASKED = """
  window.asked = { calls: 0, topics: [], heard: new Set() };
  const ask = window.fetch;
  window.fetch = async (...given) => {
    asked.calls += 1;
    try { return await ask(...given); } finally { asked.calls -= 1; }
  };
  window.EventSource = class extends window.EventSource {
    constructor(url, ...rest) {
      super(url, ...rest);
      asked.topics = new URL(url, location.href).searchParams.getAll("topic");
      for (const topic of asked.topics) this.addEventListener(topic, () => asked.heard.add(topic));
    }
  };
"""
IS_SETTLED = """() => document.querySelector("main h1") && !document.querySelector('[aria-busy="true"]')
  && !asked.calls && asked.topics.every((topic) => asked.heard.has(topic))"""
"""Script: the page has its first answers and updates; a drawn page may send further requests, see ``settle``."""
ASKS_DEEP = 3
"""Depth of requests: a page requests the objects that an answer names, and the objects that these answers name."""
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
STICKS_OUT = """() => {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return [];
  const scrolls = (one) => one !== document.body && getComputedStyle(one).overflowX !== "visible";
  const isInside = (one) => one.parentElement && (scrolls(one.parentElement) || isInside(one.parentElement));
  const guilty = [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > wide + 1 && !isInside(one));
  const said = guilty.slice(0, 5).map((one) => one.outerHTML.slice(0, 160));
  return [`${document.documentElement.scrollWidth} px`, ...said];
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Opened:
    view: View
    faults: list[str] = field(default_factory=list)
    """Errors in the browser: failed scripts, the content security policy, answers that are errors."""
    stream: str = ""
    """Topics that the page streams; empty for a page without any."""

    def note(self, asked: Request) -> None:
        if urlsplit(asked.url).path == "/live":
            self.stream = asked.url

    def unfold(self) -> None:
        """Unfold all details."""
        self.view.evaluate("() => document.querySelectorAll('details').forEach((one) => (one.open = true))")
        self.view.evaluate(TWO_FRAMES)

    def axe(self, checks_contrast: bool = True) -> str:
        """Return faults of WCAG A and AA, as text; empty when there are none. The contrast of colours takes axe half of
        its time."""
        rules = {**STANDARD["rules"], "color-contrast": {"enabled": checks_contrast}}
        found: Any = Axe().run(self.view, options={**STANDARD, "rules": rules})
        return found.generate_report() if found.violations_count else ""

    def sticks_out(self) -> list[str]:
        """Return the elements that make the page scroll sideways; empty when it does not."""
        return list(self.view.evaluate(STICKS_OUT))


_IDLE: WeakKeyDictionary[Browser, list[Opened]] = WeakKeyDictionary()
"""Pages that no test has open, by their browser."""


@dataclass(frozen=True)
class Seen:
    """Results of one page in one theme."""

    picture: Picture | None  # None where no screenshot was asked for
    title: str
    same_as: list[str]  # lines that give the same
    audit: str
    faults: list[str]
    sticks_out: list[str]  # on a narrow screen, with all details unfolded


@contextmanager
def open_view(
    browser: Browser, url: str, theme: Theme = "light", size: ViewportSize = SIZE, permissions: Sequence[str] = ()
) -> Iterator[Opened]:
    """Return the page once it is drawn and live. Pages without permissions are reused, see ``_lent``."""
    idle = _IDLE.setdefault(browser, [])
    found = _lent(idle, url) if idle and not permissions else _new_page(browser, permissions)
    view = found.view
    view.set_viewport_size(size)
    view.emulate_media(color_scheme=theme, reduced_motion="reduce")
    is_reusable = False
    try:
        view.goto(url)
        settle(view)
        yield found
        is_reusable = not permissions and not view.is_closed()
    finally:
        if is_reusable:
            view.unroute_all()
            view.goto("about:blank")  # ends scripts and streams
            idle.append(found)
        else:
            view.context.close()


def _new_page(browser: Browser, permissions: Sequence[str]) -> Opened:
    context = browser.new_context(locale="en-GB", timezone_id="Europe/Lisbon", permissions=permissions)
    found = Opened(context.new_page())
    view = found.view
    view.set_default_timeout(TIMEOUT_MS)
    view.add_init_script(NOTE_WHAT_IS_ASKED)
    view.on("pageerror", lambda error: found.faults.append(str(error)))
    view.on("console", lambda reported: found.faults.append(reported.text) if is_fault(reported) else None)
    view.on(
        "response",
        lambda reported: found.faults.append(f"{reported.status} {reported.url}") if reported.status >= 400 else None,
    )
    view.on("request", found.note)
    return found


def _lent(idle: list[Opened], url: str) -> Opened:
    """Return a page of an earlier test without the data that it stored in the browser. A new context takes more CPU
    than most tests of a page; a test whose scripts would remain closes its page, which is then not reused.
    """
    found = idle.pop()
    found.view.goto(urljoin(url, "/settings.json"))  # the shortest answer of the same origin
    found.view.evaluate("() => [localStorage, sessionStorage].forEach((storage) => storage.clear())")
    found.faults, found.stream = [], ""
    return found


def is_fault(reported: ConsoleMessage) -> bool:
    """Answers that are errors are noted with their address."""
    return reported.type in ("error", "warning") and not reported.text.startswith("Failed to load resource")


def see(browser: Browser, url: str, theme: Theme, takes_picture: bool = True, checks_contrast: bool = True) -> Seen:
    with open_view(browser, url, theme) as page:
        picture = take(page.view) if takes_picture else None
        page.unfold()
        lines = page.view.locator(".same-as code").all_text_contents()
        audit = page.axe(checks_contrast)
        page.view.set_viewport_size(NARROW)
        page.view.evaluate(TWO_FRAMES)
        return Seen(picture, page.view.title(), lines, audit, page.faults, page.sticks_out())


def settle(view: View) -> None:
    for _ in range(ASKS_DEEP):
        view.wait_for_function(IS_SETTLED)
        view.evaluate(TWO_FRAMES)
    view.evaluate("() => document.fonts.ready.then(() => true)")


def button(within: View | Locator, name: str) -> Locator:
    return within.get_by_role("button", name=name, exact=True)


def confirm(view: View, name: str) -> None:
    """Press a button, and press it again in its question."""
    button(view, name).click()
    button(view.get_by_role("dialog"), name).click()
    expect(view.get_by_role("dialog")).to_have_count(0)


def hesitate(view: View, name: str) -> None:
    """Press a button, and cancel its question."""
    button(view, name).click()
    button(view.get_by_role("dialog"), LEAVE).click()
    expect(view.get_by_role("dialog")).to_have_count(0)


def rows(within: View | Locator) -> Locator:
    return within.locator("tbody tr")
