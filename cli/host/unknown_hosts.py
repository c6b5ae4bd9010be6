"""Error text for hosts that exist in no cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from cli.errors import Failed, is_rpc_error
from cli.settings import Settings
from cli.wire import v0

NAMED_MAX = 5
"""Maximum of the unknown hosts that the error names, each with the closest names of known hosts."""
SUGGESTIONS_MAX = 3


@contextmanager
def explain_unknown(settings: Settings, hosts: Sequence[str]) -> Iterator[None]:
    """Raise Failed instead of an RPC error if some of ``hosts`` do not exist. Other errors are raised unchanged."""
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
            return ""  # the error of the first call is shown instead
        raise
    return unknown_text(hosts, {info.hostname: info.cluster for info in answer.host_infos}, answer.silent_clusters)


def unknown_text(hosts: Sequence[str], clusters: Mapping[str, str], silent: Collection[str]) -> str:
    """Return the error text, or "" if all hosts are known or may be in a ``silent`` cluster. ``clusters`` maps known
    hosts to clusters."""
    from difflib import get_close_matches

    unknown = [host for host in dict.fromkeys(hosts) if host not in clusters]
    if not unknown or not clusters or silent:
        return ""
    texts = []
    for host in unknown[:NAMED_MAX]:
        near = get_close_matches(host, clusters, SUGGESTIONS_MAX)
        texts.append(f"'{host}'" + (f" (did you mean {' or '.join(near)}?)" if near else ""))
    if len(unknown) > NAMED_MAX:
        texts.append(f"{len(unknown) - NAMED_MAX} more")
    places = sorted({*clusters.values()})
    where = f"cluster{'s' * (len(places) > 1)} {', '.join(places)}"
    return f"unknown host {' or '.join(texts)} in {where}: peloton host list shows the known hosts"
