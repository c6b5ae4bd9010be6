"""Variables of discovery for the pods of a launch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from peloton.errors import Unavailable
from peloton.lifecycle.discovery import (
    LABEL,
    NO_CONVENTIONS,
    Bounds,
    Convention,
    Launch,
    Peer,
    UnknownConvention,
    choose_port,
    conventions_in,
    extra_variables,
    pod_address,
)
from peloton.model.host import PlacedPod, Placement
from peloton.model.job import JobRecord
from services.hostmgr.driver import PodTemplate, Variables
from services.hostmgr.hosts.host_addresses import HostAddresses
from services.storage.pods.pods import Pods


class GangLaunches:
    """Makes the variables of the members of gangs. ``api`` is the address at which pods find the API, or ""."""

    def __init__(self, pods: Pods, addresses: HostAddresses, api: str) -> None:
        self._pods, self._addresses = pods, addresses
        self._always = {"PELOTON_ADDRESS": api} if api else {}

    def check(self, job: JobRecord, placements: Sequence[Placement]) -> None:
        """Check that the addresses of the hosts are known. Raises Unavailable."""
        unknown = [p.hostname for p in placements if not self._addresses.of(p.hostname)]
        if job.gang_size > 1 and unknown:
            raise Unavailable(f"the address of host {unknown[0]} is not known yet")

    def variables(
        self,
        job: JobRecord,
        placements: Sequence[Placement],
        templates: Mapping[int, PodTemplate],
        taken: Collection[int],
    ) -> dict[int, Variables]:
        """Return the variables by instance for the pods that were committed; none for a job without a gang. A launch
        commits all members of the gang or none."""
        if job.gang_size == 1 or not taken:
            return {}
        pods = {pod.instance_id: (p.hostname, pod) for p in placements for pod in p.pods if pod.instance_id in taken}
        peers = {each: self._peer(job, host, pod, templates[each]) for each, (host, pod) in pods.items()}
        asked = {instance: _conventions(templates[instance]) for instance in pods}
        ranks, bounds = range(job.gang_size), Bounds.of(job)
        found: dict[int, dict[str, str]] = {}
        if 0 in peers:
            generation = max(pods[rank][1].run_id for rank in ranks)
            launch = Launch(generation, bounds, [peers[rank] for rank in ranks], asked)
            found = dict(enumerate(launch.variables()))
        if extras := sorted(peers.keys() - set(ranks)):
            generation, coordinator = self._pods.gang_lead(job)
            of_extra = partial(extra_variables, generation, bounds, coordinator=coordinator)
            found |= {instance: of_extra(peers[instance], asked=asked[instance]) for instance in extras}
        return {instance: (*(self._always | own).items(),) for instance, own in found.items()}

    def _peer(self, job: JobRecord, hostname: str, pod: PlacedPod, template: PodTemplate) -> Peer:
        port = choose_port(template.ports(pod.ports))
        address = pod_address(self._addresses.of(hostname), job.job_id, pod.instance_id)
        return Peer(hostname, address, port, template.resources.gpu_milli > 0)


def _conventions(template: PodTemplate) -> frozenset[Convention]:
    try:
        return frozenset().union(*(conventions_in(value) for key, value in template.labels if key == LABEL))
    except UnknownConvention:  # stored by a release that did not read the label
        return NO_CONVENTIONS
