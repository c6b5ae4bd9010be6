"""Ranges, labels, states and durations on the command line."""

from contextlib import suppress
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.host.group import HOST_STATES
from cli.job.query import JOB_STATES
from cli.params import COUNT, COUNT_FROM_1, COUNT_MAX, DURATION, INSTANCE_MAX, LABEL, LABELS, POOL_PATH, RANGE, WORDS
from cli.stateless.options import create_words, place_words, rollback_words
from cli.task.logs import with_long_options

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"

GOOD = {
    "both sides": (RANGE, "3:7", (3, 7)),
    "from the first": (RANGE, ":7", (0, 7)),
    "to the last": (RANGE, "3:", (3, INSTANCE_MAX)),
    "all": (RANGE, ":", (0, 2147483647)),
    "label of a watch": (LABEL, "stage:a=b", ("stage", "a=b")),
    "label of a watch, as elsewhere": (LABEL, "stage=test", ("stage", "test")),
    "no label": (LABELS, "", ()),
    "one label": (LABELS, "k=v", (("k", "v"),)),
    "labels": (LABELS, "k=v, k2=v2", (("k", "v"), ("k2", "v2"))),
    "label without value": (LABELS, "k=", (("k", ""),)),
    "states": (JOB_STATES, "RUNNING,failed", ("RUNNING", "FAILED")),
    "host states with prefix": (HOST_STATES, "HOST_STATE_UP,down", ("UP", "DOWN")),
    "words": (WORDS, "a, b,,c", ("a", "b", "c")),
    "seconds": (DURATION, "20s", 20.0),
    "bare seconds": (DURATION, "1.5", 1.5),
    "minutes and seconds": (DURATION, "1m30s", 90.0),
    "milliseconds": (DURATION, "500ms", 0.5),
    "pool": (POOL_PATH, "/eng/maps/", "/eng/maps"),
    "root pool": (POOL_PATH, "/", "/"),
}


@pytest.mark.parametrize(("kind", "text", "expected"), GOOD.values(), ids=GOOD.keys())
def test_values_are_read(kind: click.ParamType[Any], text: str, expected: object) -> None:
    """A valid text gives its value."""
    assert expected == kind.convert(text, None, None)


BAD = {
    "range without colon": (RANGE, "3", "expected FROM:TO got '3'"),
    "negative range": (RANGE, "-1:4", "expected FROM:TO got '-1:4'"),
    "words as range": (RANGE, "a:b", "expected FROM:TO got 'a:b'"),
    "three sides": (RANGE, "1:2:3", "expected FROM:TO got '1:2:3'"),
    "empty range": (RANGE, "4:4", "'4:4' is empty: FROM must be below TO, which is not included"),
    "huge range": (RANGE, "0:2147483648", "'0:2147483648' goes beyond 2147483647"),
    "label without equals": (LABELS, "k", "Invalid label 'k', expected KEY=VALUE"),
    "label with two": (LABELS, "k=v=w", "Invalid label 'k=v=w', expected KEY=VALUE"),
    "label of a watch without a key": (LABEL, ":v", "Invalid label ':v', expected KEY:VALUE"),
    "label of a watch without a mark": (LABEL, "kv", "Invalid label 'kv', expected KEY:VALUE"),
    "negative count": (COUNT, "-1", "expected a whole number, 0 or more, got '-1'"),
    "large count": (COUNT, "4294967296", "4294967296 goes beyond 4294967295"),
    "too few": (COUNT_FROM_1, "0", "expected a whole number, 1 or more, got '0'"),
    "unknown state": (HOST_STATES, "SLEEPY", "invalid state 'SLEEPY', expected one of UP, DRAINING, DRAINED, DOWN"),
    "duration": (DURATION, "soon", "expected a duration like 20s, 1m30s or 500ms, got 'soon'"),
    "no time": (DURATION, "0s", "must be more than 0"),
    "eternity": (DURATION, "99999999999999h", "'99999999999999h' goes beyond 876000h"),
    "relative pool": (POOL_PATH, "dev", "path should begin with /, got 'dev'"),
}


@pytest.mark.parametrize(("kind", "text", "expected"), BAD.values(), ids=BAD.keys())
def test_bad_values_are_refused(kind: click.ParamType[Any], text: str, expected: str) -> None:
    """An invalid text is refused with the expected form."""
    with pytest.raises(click.BadParameter) as refused:
        kind.convert(text, None, None)
    assert expected == refused.value.message


LOGS = {
    "before the job": (["-f", JOB, "0"], ["--follow", JOB, "0"]),
    "at the end": ([JOB, "0", "-f"], [JOB, "0", "--follow"]),
    "between job and instance": ([JOB, "-f", "0"], [JOB, "--follow", "0"]),
    "before a run": ([JOB, "0", "-f", f"{JOB}-0-1"], [JOB, "0", "--follow", f"{JOB}-0-1"]),
    "before an option": (["-f", "--json", JOB, "0"], ["--follow", "--json", JOB, "0"]),
    "the original's file": ([JOB, "0", "-f", "stderr"], [JOB, "0", "--filename", "stderr"]),
    "the original's file, first": (["-f", "stderr", JOB, "0"], ["--filename", "stderr", JOB, "0"]),
    "glued file": (["-fstderr", JOB, "0"], ["--filename=stderr", JOB, "0"]),
    "before a name": (["-f", "hello", "7"], ["--follow", "hello", "7"]),
    "before a name in one word": (["-f", "hello-7"], ["--follow", "hello-7"]),
    "a file and a name": (["-f", "stderr", "hello", "7"], ["--filename", "stderr", "hello", "7"]),
    "a name and a file": (["hello", "7", "-f", "stderr"], ["hello", "7", "--filename", "stderr"]),
    "behind two dashes": (["--", "-f"], ["--", "-f"]),
    "both": (["-F", "-f", "stderr", JOB, "0"], ["-F", "--filename", "stderr", JOB, "0"]),
}


@pytest.mark.parametrize(("words", "expected"), LOGS.values(), ids=LOGS.keys())
def test_the_two_meanings_of_f_are_distinguished(words: list[str], expected: list[str]) -> None:
    """``task logs -f`` follows, unless the next word can only be a file's name."""
    assert expected == with_long_options(words)


def test_states_are_completed_behind_a_comma() -> None:
    """Completion keeps the states before the last comma."""
    command = click.Command("query", params=[click.Option(["-s"], type=JOB_STATES)])
    found = JOB_STATES.shell_complete(click.Context(command), command.params[0], "RUNNING,KIL")
    assert [item.value for item in found] == ["RUNNING,KILLED", "RUNNING,KILLING"]


@given(st.integers(-(2**40), 2**40))
def test_counts_are_what_the_wire_can_say(number: int) -> None:
    """Every number of 32 bits is valid, and every other one is refused."""
    if 0 <= number <= COUNT_MAX:
        assert number == COUNT.convert(str(number), None, None)
    else:
        with pytest.raises(click.BadParameter):
            COUNT.convert(str(number), None, None)


@given(st.text())
def test_any_text_is_a_value_or_refused(text: str) -> None:
    """No text breaks the parsing of a count or a label, and the value corresponds to the text."""
    with suppress(click.BadParameter):
        count = COUNT.convert(text, None, None)
        assert text.lstrip("0") == str(count or "")
    with suppress(click.BadParameter):
        key, value = LABEL.convert(text, None, None)
        assert key
        assert key in text
        assert value in text


PLAIN = st.text(st.characters(blacklist_characters=":=", blacklist_categories=["Cs", "Z", "C"]), min_size=1)


@given(PLAIN, PLAIN, st.sampled_from(":="))
def test_labels_of_a_watch_come_apart_again(key: str, value: str, mark: str) -> None:
    """Key and value are found on both sides of either mark."""
    assert (key, value) == LABEL.convert(f"{key}{mark}{value}", None, None)


WORD = click.Context(click.Command("replace"))
VERSIONS = st.tuples(*[st.integers(0, 999)] * 3).map(lambda numbers: "-".join(map(str, numbers)))
POOLS = st.lists(st.sampled_from(["a", "b-1", "1"]), min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))


@given(st.none() | POOLS, st.none() | VERSIONS, st.booleans())
def test_pool_and_version_are_distinguished(pool: str | None, version: str | None, turned: bool) -> None:
    """A path and an entity version may both be left out and stand in any order."""
    words = [word for word in (pool, version) if word is not None]
    found = place_words(WORD, click.Argument(["words"]), words[::-1] if turned else words)
    assert (pool or "", version or "") == found


@given(st.none() | st.integers(0, COUNT_MAX), st.none() | VERSIONS, st.booleans())
def test_batch_size_and_version_are_distinguished(size: int | None, version: str | None, turned: bool) -> None:
    """A batch size and an entity version may both be left out and stand in any order."""
    words = [str(word) for word in (size, version) if word is not None]
    found = rollback_words(WORD, click.Argument(["words"]), words[::-1] if turned else words)
    assert (size, version or "") == found


@given(st.none() | POOLS, st.none() | st.integers(0, COUNT_MAX))
def test_pool_spec_and_batch_size_are_distinguished(pool: str | None, size: int | None) -> None:
    """The file is required; pool and batch size are optional."""
    words = [str(word) for word in (pool, __file__, size) if word is not None]
    found = create_words(WORD, click.Argument(["words"], nargs=-1), words)
    assert (pool or "", __file__, size or 0) == (found.pool, str(found.spec), found.batch_size)
