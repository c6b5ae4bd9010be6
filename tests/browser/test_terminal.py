"""Terminals in pods, in which users type, and logs that they read, search and download."""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Locator, expect
from playwright.sync_api import Page as View

from services.web.log_files import CHUNK_BYTES
from tests.browser.conftest import Visit
from tests.browser.stage import COUNTS, Stage
from tests.browser.views import button, confirm, open_view, rows

pytestmark = pytest.mark.xdist_group("stories")
LINES = 60_000
BIG = f'seq -f "line %.0f of many" 0 {LINES - 1}; echo "the needle is here"; exec sleep 100000'
ODD = r"printf '\033[31mred\033[0m \033]0;title\007safe \342\200\256reversed \a<b>bold</b>\n'; exec sleep 100000"
SIZES_ASKED_MAX = 50


def screen(view: View) -> Locator:
    return view.locator(".terminal-screen .xterm-rows")


def start(view: View, command: str = "") -> None:
    view.get_by_label("Command").fill(command)
    view.get_by_role("button", name=re.compile("Start (another )?session")).click()
    expect(view.get_by_text("Connected", exact=True)).to_be_visible()


def type_line(view: View, text: str) -> None:
    view.keyboard.type(text)
    view.keyboard.press("Enter")


def test_a_shell_is_typed_in_and_ends_with_its_code(stage: Stage, visit: Visit) -> None:
    """The shell has the environment of the pod and a terminal of the page's size; a second session starts a new
    shell.
    """
    job = stage.running("has a terminal")
    view = visit(f"/jobs/{job}?instance=0")
    view.get_by_role("link", name="Terminal").click()
    expect(view.get_by_role("heading", level=1)).to_have_text("Terminal in instance 0")

    start(view)
    type_line(view, "echo $PELOTON_INSTANCE_ID-$((40+2))-$TERM")
    expect(screen(view)).to_contain_text("0-42-xterm-256color")
    wide = size(view)
    view.set_viewport_size({"width": 700, "height": 600})
    narrow = size(view)
    assert narrow[0] < wide[0]
    assert narrow[1] < wide[1]
    type_line(view, "exit 7")
    expect(view.get_by_text("The command has ended with exit code 7")).to_be_visible()

    start(view, "sh -c 'read name; echo hello $name; exit 3'")
    type_line(view, "Ada")
    expect(view.get_by_text("The command has ended with exit code 3")).to_be_visible()
    expect(screen(view)).to_contain_text("hello Ada")
    expect(screen(view)).not_to_contain_text("xterm-256color")


def size(view: View) -> tuple[int, int]:
    """Read rows and columns from the shell until they equal the drawn ones."""
    for _ in range(SIZES_ASKED_MAX):
        type_line(view, "clear; stty size")
        expect(screen(view)).to_contain_text(re.compile(r"^\s*\d+.\d+"))
        reported = re.findall(r"\d+", screen(view).text_content() or "")
        drawn = view.locator(".terminal-screen .xterm-rows > div").count()
        if len(reported) >= 2 and int(reported[0]) == drawn:
            return drawn, int(reported[1])
    raise AssertionError("the terminal has another size than what is drawn")


def test_a_lot_of_output_and_a_key_that_interrupts_it(stage: Stage, visit: Visit) -> None:
    """Output that arrives faster than it is drawn blocks the command, so that a key arrives."""
    view = visit(f"/jobs/{stage.running('writes much')}/0/terminal")
    start(view, "sh -c 'trap \"echo; echo stopped; exit 5\" INT; while :; do echo a long line of output; done'")
    expect(screen(view)).to_contain_text("a long line")

    view.keyboard.press("Control+c")

    expect(view.get_by_text("The command has ended with exit code 5")).to_be_visible()
    expect(screen(view)).to_contain_text("stopped")


def test_a_session_that_is_over_says_so(stage: Stage, browser: Browser) -> None:
    """A session ends by its button, which has keyboard focus, with role web, and with its pod; it is never resumed."""
    job = stage.running("ends sessions")
    with open_view(browser, f"{stage.url}/jobs/{job}/0/terminal") as page:
        view = page.view
        start(view)
        expect(view.get_by_label("Terminal input")).to_be_focused()
        view.keyboard.press("Shift+Tab")  # over the choice of a screen reader
        view.keyboard.press("Shift+Tab")
        expect(button(view, "End session")).to_be_focused()
        view.keyboard.press("Enter")
        expect(view.get_by_text("The session has ended: It was ended from this page")).to_be_visible()

        start(view)
        stage.cluster.stop_part("web")
        expect(view.get_by_text("The session has ended: The connection was lost")).to_be_visible()
        button(view, "Start another session").click()
        expect(view.get_by_text("The session has ended: Peloton does not answer")).to_be_visible()
        stage.cluster.start_part("web")
        stage.cluster.wait(lambda: is_served(stage.url), "role web")

        start(view)
        with open_view(browser, f"{stage.url}/jobs/{job}") as other:
            confirm(other.view, "Stop job")
        expect(view.get_by_text(re.compile("The (session|command) has ended"))).to_be_visible()
        expect(button(view, "Start another session")).to_be_disabled()


def is_served(url: str) -> bool:
    try:
        with urlopen(f"{url}/settings.json", timeout=5.0) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False


def test_a_command_that_is_none_says_so(stage: Stage, visit: Visit) -> None:
    """The reason of a failed command is on the page, and the next one may be typed."""
    view = visit(f"/jobs/{stage.running('lacks a command')}/0/terminal")
    view.get_by_label("Command").fill("echo 'a")
    button(view, "Start session").click()
    expect(view.get_by_text("the command cannot be split into words")).to_be_visible()
    expect(button(view, "Start another session")).to_be_enabled()


def log_of(view: View, file: str = "stdout") -> Locator:
    return view.get_by_role("region", name=f"{file} of instance 0")


def seek(view: View, text: str) -> None:
    view.get_by_label("Text in the log").fill(text)
    view.get_by_label("Text in the log").press("Enter")


def test_a_big_log_is_searched_moved_through_and_downloaded(stage: Stage, visit: Visit, tmp_path: Path) -> None:
    """The page holds a window of a big log."""
    job = stage.running("prints much", BIG)
    view = visit(f"/jobs/{job}/0/log")
    log = log_of(view)
    expect(log).to_contain_text("the needle is here")
    assert len(log.text_content() or "") < 2 * CHUNK_BYTES
    current = log.locator("mark.current")

    seek(view, "LINE 30000 OF")
    expect(view.get_by_text("1 of 1", exact=True)).to_be_visible()
    expect(current).to_have_text("line 30000 of")
    expect(current).to_be_in_viewport()
    expect(log).not_to_contain_text("the needle is here")

    seek(view, "line 5999")
    expect(view.get_by_text("1 of 11", exact=True)).to_be_visible()  # itself, and 59990 to 59999
    expect(current).to_be_in_viewport()
    button(view, "Previous").click()
    expect(view.get_by_text("11 of 11", exact=True)).to_be_visible()
    expect(log).to_contain_text("line 59999 of many")
    button(view, "Next").click()
    expect(view.get_by_text("1 of 11", exact=True)).to_be_visible()
    expect(current).to_be_in_viewport()

    button(view, "First lines").click()
    expect(log).to_contain_text("line 0 of many")
    for number in (5_000, 10_000):  # more is read as the reader scrolls
        scroll_until(view, log, f"line {number} of many")

    with view.expect_download() as taken:
        view.get_by_role("link", name="Download").click()
    file = tmp_path / "taken.txt"
    taken.value.save_as(file)
    lines = file.read_text().splitlines()
    assert (LINES + 1, "line 0 of many", "the needle is here") == (len(lines), lines[0], lines[-1])
    assert f"{job}-0-1-stdout.txt" == taken.value.suggested_filename


def scroll_until(view: View, log: Locator, text: str) -> None:
    log.hover()
    for _ in range(400):
        if text in (log.text_content() or ""):
            return
        view.mouse.wheel(0, 20_000)
    expect(log).to_contain_text(text)


def test_a_log_that_grows_is_followed_or_left(stage: Stage, visit: Visit) -> None:
    """The position of a reader who does not follow is kept; wrapping is a choice, and files have their own
    addresses.
    """
    job = stage.running("grows", f"echo oops >&2; echo {'wide-' * 100}; {COUNTS}")
    view = visit(f"/jobs/{job}/0/log")
    log = log_of(view)
    expect(log).to_contain_text(re.compile(r"line \d"))

    view.get_by_label("Wrap").uncheck()
    assert log.evaluate("(one) => one.scrollWidth > one.clientWidth")
    view.get_by_label("Wrap").check()
    assert log.evaluate("(one) => one.scrollWidth <= one.clientWidth")

    view.get_by_label("Follow").uncheck()
    expect(view.get_by_text("Not followed", exact=True)).to_be_visible()
    last = max(map(int, re.findall(r"line (\d+)", log.text_content() or "")))
    other = visit(f"/jobs/{job}/0/log")
    expect(log_of(other)).to_contain_text(f"line {last + 15}")
    assert f"line {last + 15}" not in (log.text_content() or "")
    view.get_by_label("Follow").check()
    expect(log).to_contain_text(f"line {last + 15}")

    view.get_by_label("File").select_option("stderr")
    expect(log_of(view, "stderr")).to_contain_text("oops")
    assert view.url.endswith("file=stderr")


def test_logs_of_earlier_runs_are_read(stage: Stage, visit: Visit) -> None:
    """The sandboxes of earlier runs are still there."""
    job = stage.running("runs twice", 'echo "this is $MESOS_TASK_ID"; exec sleep 100000')
    view = visit(f"/jobs/{job}?instance=0")
    confirm(view, "Restart instance")
    events = view.get_by_role("region", name="Instance 0", exact=True).get_by_role("table")
    second = rows(events).filter(has=view.locator("td:nth-child(4)", has_text=re.compile("^2$")))
    expect(second.filter(has=view.locator(".state", has_text="running"))).to_have_count(1)

    view.get_by_role("combobox", name="Run", exact=True).select_option("1")
    expect(log_of(view)).to_contain_text(f"this is {job}-0-1")
    view.get_by_role("link", name="On its own page").click()
    expect(log_of(view)).to_contain_text(f"this is {job}-0-1")
    view.get_by_role("combobox", name="Run", exact=True).select_option("2")
    expect(log_of(view)).to_contain_text(f"this is {job}-0-2")


def test_a_log_does_nothing_to_its_reader(stage: Stage, visit: Visit) -> None:
    """Colours and titles are removed, characters that change the direction of text are shown as numbers, and tags are
    text.
    """
    view = visit(f"/jobs/{stage.running('prints oddly', ODD)}/0/log")

    expect(log_of(view)).to_contain_text(r"red safe \u202ereversed \x07<b>bold</b>")
    expect(log_of(view).locator("b")).to_have_count(0)
    expect(view).to_have_title(re.compile("Log"))
