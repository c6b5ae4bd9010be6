"""Recorded names and the actual ones they stand for, and requests rewritten with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson


class Bindings:
    """`names` maps recorded ids, uuids and stream ids; `offers` a recorded offer id to the actual offers behind it.
    `command` rewrites commands that sleep."""

    def __init__(self, command: Callable[[str], str], data_dir: str) -> None:
        self.names: dict[str, str] = {}
        self.offers: dict[str, list[str]] = {}
        self._command = command
        self._data_dir = data_dir

    def headers(self, line: dict[str, Any]) -> dict[str, str]:
        headers = {key: value for key, value in line["request_headers"].items() if key != "Content-Length"}
        stream_id = headers.get("Mesos-Stream-Id")
        if stream_id is not None:
            headers["Mesos-Stream-Id"] = self.names.get(stream_id, stream_id)
        headers.setdefault("Host", "127.0.0.1")
        return headers

    def body(self, request: Any) -> bytes:
        if request is None:
            return b""
        if isinstance(request, dict) and set(request) == {"raw"}:
            raw: str = request["raw"]
            if raw.startswith("b'"):
                return raw[2:-1].encode("latin-1").decode("unicode_escape").encode("latin-1")
            for theirs, ours in self.names.items():
                raw = raw.replace(theirs, ours)
            return raw.encode()
        return orjson.dumps(self.translate(request))

    def translate(self, value: Any, key: str = "") -> Any:
        """A recorded request with the actual names in it."""
        if isinstance(value, dict):
            return {name: self.translate(item, name) for name, item in value.items()}
        if isinstance(value, list):
            if key == "offer_ids":
                return self._offer_ids(value)
            return [self.translate(item) for item in value]
        if isinstance(value, str):
            if "sleep " in value:
                return self._command(value)
            if value in self.names:
                return self.names[value]
            return self.path(value) if value.startswith("/var/lib/mesos/") else value
        return value

    def path(self, value: str) -> str:
        for theirs, ours in self.names.items():
            value = value.replace(theirs, ours)
        _, found, rest = value.partition("/slaves/")
        return f"{self._data_dir}{found}{rest}" if found else value

    def _offer_ids(self, ids: list[dict[str, str]]) -> list[dict[str, str]]:
        result: list[tuple[str, str]] = []
        for item in ids:
            for actual in self.offers.get(item["value"], [item["value"]]):
                if not any(theirs != item["value"] and ours == actual for theirs, ours in result):
                    result.append((item["value"], actual))
        return [{"value": actual} for _, actual in result]

    def query(self, path: str) -> str:
        before, _, rest = path.partition("path=")
        value, mark, more = rest.partition("&")
        return f"{before}path={self.path(value)}{mark}{more}"

    def bind(self, recorded: dict[str, Any], actual: dict[str, Any]) -> None:
        type_ = recorded["type"]
        if type_ == "SUBSCRIBED" and "framework_id" in recorded["subscribed"]:
            theirs = recorded["subscribed"]["framework_id"]["value"]
            self.names[theirs] = actual["subscribed"]["framework_id"]["value"]
        elif type_ == "UPDATE":
            theirs = recorded["update"]["status"].get("container_status", {}).get("container_id", {}).get("value")
            ours = actual["update"]["status"].get("container_status", {}).get("container_id", {}).get("value")
            if theirs and ours:
                self.names[theirs] = ours
            if "uuid" in recorded["update"]["status"]:
                self.names[recorded["update"]["status"]["uuid"]] = actual["update"]["status"].get("uuid", "")
        elif type_ == "INVERSE_OFFERS":
            pairs = zip(
                recorded["inverse_offers"]["inverse_offers"], actual["inverse_offers"]["inverse_offers"], strict=False
            )
            for left, right in pairs:
                self.names[left["id"]["value"]] = right["id"]["value"]
