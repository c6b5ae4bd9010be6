"""Accessors of a Mesos TaskInfo, through which all runners of tasks read it."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from services.lab.mesos.resources import Json

_IMAGES = (("docker", "image"), ("mesos", "image", "docker", "name"), ("mesos", "image", "appc", "name"))


def image_of(info: Json) -> str:
    """Return the image, "" without one."""
    for place in _IMAGES:
        found: Any = info.get("container")
        for key in place:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, str) and found:
            return found
    return ""


def labels_of(info: Json) -> dict[str, str]:
    return {row["key"]: row.get("value", "") for row in info.get("labels", {}).get("labels", ())}


def argv_of(command: Json) -> tuple[list[str], str | None]:
    """Return (argv, executable): a shell command runs in /bin/sh, otherwise `value` is the file and `arguments` the
    argv."""
    value: str = command.get("value", "")
    if command.get("shell", True):
        return ["/bin/sh", "-c", value], None
    arguments = list(command.get("arguments", ()))
    return (arguments, value) if arguments else ([value], None)


def text_of(command: Json) -> str:
    """Return the command as one line."""
    words = [command.get("value", "")]
    if command.get("shell") is False:
        words.extend(command.get("arguments", ()))
    return " ".join(words)


def gpu_count(info: Json) -> int:
    amounts = (float(one["scalar"]["value"]) for one in info.get("resources", ()) if one["name"] == "gpus")
    return round(sum(amounts))


def variables_of(command: Json) -> dict[str, str]:
    """Return the variables of a command, with the values of secret ones."""
    return {entry["name"]: _value_of(entry) for entry in command.get("environment", {}).get("variables", ())}


def _value_of(entry: Json) -> str:
    data = entry.get("secret", {}).get("value", {}).get("data", "")
    return b64decode(data).decode(errors="replace") if data else str(entry.get("value", ""))
