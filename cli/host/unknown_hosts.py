"""The error text on hosts that no cluster has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from cli.errors import Failed, is_rpc_error
from cli.settings import Settings
from cli.wire import v0

NAMED_MAX = 5
"""Limit of the unknown hosts that are named, each with the hosts whose names are nearest."""
NEAREST_MAX = 3


@contextmanager
def explain_unknown(settings: Settings, hosts: Sequence[str]) -> Iterator[None]:
    """Turn a refusal of a call about ``hosts`` into Failed if some of them do not exist; raise any other one
    unchanged."""
    try:
        yield
    except Exception as error:
        if not is_rpc_error(error) or error.code().name not in ("ABORTED", "NOT_FOUND"):
            raise
        if text := look_up_unknown(settings, hosts):
            raise Failed(text) from error
        raise


def look_up_unknown(settings: Settings, hosts: Sequence[str]) -> str:
    try:
        answer = settings.client.hosts.QueryHosts(v0.host_svc.QueryHostsRequest())
    except Exception as error:
        if is_rpc_error(error):
            return ""  # the refusal itself suffices
        raise
    return unknown_text(hosts, {info.hostname: info.cluster for info in answer.host_infos}, answer.silent_clusters)


def unknown_text(hosts: Sequence[str], clusters: Mapping[str, str], silent: Collection[str]) -> str:
    """Return the text, empty if all are known, or may be in a ``silent`` cluster. ``clusters``: known host -> its
    cluster."""
    from difflib import get_close_matches

    unknown = [host for host in dict.fromkeys(hosts) if host not in clusters]
    if not unknown or not clusters or silent:
        return ""
    texts = []
    for host in unknown[:NAMED_MAX]:
        near = get_close_matches(host, clusters, NEAREST_MAX)
        texts.append(f"'{host}'" + (f" (did you mean {' or '.join(near)}?)" if near else ""))
    if len(unknown) > NAMED_MAX:
        texts.append(f"{len(unknown) - NAMED_MAX} more")
    places = sorted({*clusters.values()})
    where = f"cluster{'s' * (len(places) > 1)} {', '.join(places)}"
    return f"unknown host {' or '.join(texts)} in {where}: peloton host list shows the known hosts"
