"""Objects of one kind, listed in pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlencode

from services.hostmgr.kubernetes.apiserver.wire import Answer, ApiServer, Json, Refused, Request

PAGES_MAX = 10_000


def pages(api: ApiServer, path: str, limit: int) -> Iterator[tuple[Json, list[Json]]]:
    """Yield the metadata and the objects of each page: at most ``limit`` objects, or all for 0. ``path`` is a
    collection with selectors as its query. Raises OSError, including Refused, and ValueError."""
    query: dict[str, str | int] = {"limit": limit} if limit else {}
    for _ in range(PAGES_MAX):
        answer = api.ask(Request("GET", with_query(path, query)))
        if not answer.is_ok:
            raise Refused(answer)
        metadata, items = _list_of(answer)
        yield metadata, items
        if not metadata.get("continue"):
            return
        query["continue"] = metadata["continue"]
    raise OSError(f"the list of {path.partition('?')[0]} has more than {PAGES_MAX} pages")


def with_query(path: str, query: Mapping[str, str | int]) -> str:
    """Append ``query`` to a path that may have selectors."""
    return path + ("&" if "?" in path else "?") + urlencode(query)


def _list_of(answer: Answer) -> tuple[Json, list[Json]]:
    """Return the metadata and objects of a list. Raises ValueError."""
    page = answer.json()
    metadata = page.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("resourceVersion"):
        raise ValueError(f"a list expected: {answer.body[:200].decode(errors='replace')}")
    return metadata, page.get("items") or []
