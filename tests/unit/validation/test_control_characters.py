"""Names and labels of jobs cannot control a terminal that shows them."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from peloton.api.v0.job import job_pb2
from services.api.validation import job_faults

RULE = "control characters and characters that change the direction of text are not allowed"
POD = "Invalid config for instance 0, "
PROXY = {"name": "proxy", "command": {"value": "true"}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"name": "x\x1b]0;t\a"}, rf"name 'x\x1b]0;t\x07' contains \x1b (U+001B) at 1: {RULE}"),
    "line": ({"name": "a\nb"}, rf"name 'a\nb' contains \x0a (U+000A) at 1: {RULE}"),
    "owner": ({"owner": "\x9b31m"}, rf"owner '\x9b31m' contains \x9b (U+009B) at 0: {RULE}"),
    "owningTeam": ({"owningTeam": "a\u202e"}, rf"owningTeam 'a\u202e' contains \u202e (U+202E) at 1: {RULE}"),
    "ldapGroups": ({"ldapGroups": ["a", "\u2028"]}, rf"ldapGroups '\u2028' contains \u2028 (U+2028) at 0: {RULE}"),
    "description": ({"description": "a\r"}, rf"description 'a\r' contains \x0d (U+000D) at 1: {RULE}"),
    "label": ({"labels": [{"key": "\x7f"}]}, rf"label '\x7f' contains \x7f (U+007F) at 0: {RULE}"),
    "value": (
        {"labels": [{"key": "k", "value": "\u2067"}]},
        rf"label 'k': value '\u2067' contains \u2067 (U+2067) at 0: {RULE}",
    ),
    "pod": ({"defaultConfig": {"name": "\b"}}, rf"{POD}name '\x08' contains \x08 (U+0008) at 0: {RULE}"),
    "pod of an instance": (
        {"instanceConfig": {"1": {"name": "\b"}}},
        rf"Invalid config for instance 1, name '\x08' contains \x08 (U+0008) at 0: {RULE}",
    ),
    "label of pods": (
        {"defaultConfig": {"labels": [{"key": "\b"}]}},
        rf"{POD}label '\x08' contains \x08 (U+0008) at 0: {RULE}",
    ),
    "port": (
        {"defaultConfig": {"ports": [{"name": "\b", "value": 80}]}},
        rf"{POD}port name '\x08' contains \x08 (U+0008) at 0: {RULE}",
    ),
    "envName": (
        {"defaultConfig": {"ports": [{"name": "a", "value": 80, "envName": "\b"}]}},
        rf"{POD}envName '\x08' contains \x08 (U+0008) at 0: {RULE}",
    ),
    "port of another container": (
        {"defaultConfig": {"otherContainers": [{**PROXY, "ports": [{"name": "\b", "value": 80}]}]}},
        rf"{POD}port name '\x08' contains \x08 (U+0008) at 0: {RULE}",
    ),
}


def faults_of(fields: dict[str, Any]) -> list[str]:
    config = job_pb2.JobConfig(instanceCount=2, type=job_pb2.BATCH)
    config.defaultConfig.command.value = "true"
    return job_faults(ParseDict(fields, config), None).lines()


@pytest.mark.parametrize("name", REFUSED)
def test_texts_with_control_characters(name: str) -> None:
    """The fault has the field, the character and its place."""
    fields, text = REFUSED[name]

    assert [text] == faults_of(fields)


def test_letters_of_all_scripts() -> None:
    """Letters and joiners are valid, and so are line ends in texts other than names."""
    fields = {
        "name": "Zürich 東京 👩\u200d🚀 עברית",
        "description": "one\n\ttwo",
        "labels": [{"key": "k", "value": "one\n\ttwo"}],
    }

    assert [] == faults_of(fields)
