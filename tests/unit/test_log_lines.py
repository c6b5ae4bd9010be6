"""Log lines of unexpected texts."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from services.lab.local.part import LINE_BYTES_MAX, Part
from services.log_lines import LINE_CHARS_MAX, printable
from services.telemetry.logs import RECORD_LINES_MAX, BoundedLines


def test_control_characters_are_escaped() -> None:
    """NUL bytes, and characters that control a terminal or the direction of text, are escaped; tabs and letters of all
    languages are kept.
    """
    assert r"a\x00b\x1b[2Jc\x9bd\u202e" + "\té" == printable("a\0b\x1b[2Jc\x9bd\u202e\té")


def test_a_long_line_is_cut_and_says_how_long_it_was() -> None:
    """A line that fits is whole."""
    assert "x" * LINE_CHARS_MAX == printable("x" * LINE_CHARS_MAX)
    assert "x" * LINE_CHARS_MAX + " ... (716000 characters)" == printable("x" * 716_000)


def test_a_record_has_bounded_lines_and_so_many() -> None:
    """The lines of a trace are kept, and indented: a message with line breaks looks like no other record."""
    record = logging.makeLogRecord({"msg": "one\0\n" + "two\n" * RECORD_LINES_MAX})

    lines = BoundedLines(logging.Formatter("%(message)s")).format(record).split("\n")

    assert ["one\\x00", "  two"] == lines[:2]
    assert (RECORD_LINES_MAX + 1, f"  ... ({RECORD_LINES_MAX + 2} lines)") == (len(lines), lines[-1])


def relay_lines(script: str, log_path: Path, last: str) -> list[str]:
    """Return the lines that the supervisor of a printing process shows, up to the last expected one."""
    lines: list[str] = []

    async def run() -> None:
        seen = asyncio.Event()

        def report(_: str, line: str) -> None:
            lines.append(line)
            if line == last:
                seen.set()

        part = Part("p", [sys.executable, "-c", script], {}, log_path, report)
        await part.start()
        async with asyncio.timeout(120):
            await seen.wait()
        await part.stop(now=True)

    asyncio.run(run())
    return lines


PRINT = f"print('a\\0' + 'x' * 716_000); print('y' * {2 * LINE_BYTES_MAX}); print('end', flush=True); input()"


def test_lines_of_parts_are_bounded_on_the_terminal_and_in_the_file(tmp_path: Path) -> None:
    """Lines of parts are bounded; a line that is too long to be read is replaced by a note."""
    lines = relay_lines(PRINT, tmp_path / "p.log", "end")

    assert lines[0].startswith("a\\x00xx")
    assert lines[0].endswith("... (716002 characters)")
    assert f"(a line of more than {LINE_BYTES_MAX} bytes is left out)" in lines
    assert lines[: lines.index("end") + 1] == (tmp_path / "p.log").read_text().splitlines()[: lines.index("end") + 1]


def test_a_log_that_cannot_be_written_is_named_and_ends_nothing() -> None:
    """A full disk is reported once, with the file's name; the lines still reach the terminal."""
    full = Path("/dev/full")

    lines = relay_lines("print('one'); print('two'); print('end', flush=True); input()", full, "end")

    lost = f"log file {full} cannot be written: No space left on device"
    assert (1, ["one", "two", "end"]) == (lines.count(lost), [line for line in lines if line in ("one", "two", "end")])
