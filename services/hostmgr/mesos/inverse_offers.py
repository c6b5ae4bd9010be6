"""Inverse offers: Mesos asks whether we leave a host that it takes away for maintenance."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from peloton.model.ids import Hostname
from services.hostmgr.mesos.agent_watch import AgentWatch
from services.hostmgr.mesos.resources import Json

log = logging.getLogger(__name__)

REFUSE_S = 60
"""Mesos asks again after this."""
KEPT_MAX = 1_000
"""Unanswered ones; Mesos repeats those that get lost."""


class InverseOffers:
    """The thread of events takes them in, another thread answers."""

    def __init__(self, agents: AgentWatch, send_all: Callable[[Sequence[Json]], object]) -> None:
        self._agents = agents
        self._send_all = send_all
        self._asked: deque[Json] = deque(maxlen=KEPT_MAX)

    def came(self, offers: Iterable[Json]) -> None:
        self._asked.extend(offers)

    def answer(self, going: Collection[Hostname]) -> None:
        """Accept for hosts that are in maintenance here; operators decide about others that Mesos announces."""
        asked = [self._asked.popleft() for _ in range(len(self._asked))]
        if not asked:
            return
        agents = (self._agents.of_host(hostname) for hostname in going)
        ours = {agent.host.host_id for agent in agents if agent is not None}
        for verb in ("ACCEPT", "DECLINE"):
            ids = [o["id"] for o in asked if (o["agent_id"]["value"] in ours) == (verb == "ACCEPT")]
            if ids:
                body = {"inverse_offer_ids": ids, "filters": {"refuse_seconds": REFUSE_S}}
                name = f"{verb}_INVERSE_OFFERS"
                try:
                    self._send_all([{"type": name, name.lower(): body}])
                except OSError as error:
                    log.info("%d inverse offers not answered: %s; Mesos asks again", len(ids), error)
