"""Another scheduler creates and deletes pods on the same nodes at any time, and the ledger learns of it late."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import count, repeat

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from peloton.model.host import ReadyGang
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import PodShape
from peloton.model.resources import Resources
from peloton.scheduling.placement import place
from services.hostmgr.driver import Claim, FreeResources
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.kubernetes.nodes.ledger import Ledger
from services.hostmgr.kubernetes.nodes.node_line import Demand
from services.hostmgr.kubernetes.nodes.nodes import Node
from tests.nightly import examples

CAPACITY = Resources.of(4, 1_000, 100, 2)
PODS_MAX = 3
NODES = ("n1", "n2")
KINDS = ("cpu_milli", "memory_mib", "disk_mib", "gpu_milli")
PORTS = ((25_000, 25_002),)
NOTHING = Resources()
JOB = JobId("job")

nodes = st.sampled_from(NODES)
demands = st.builds(
    Demand,
    st.builds(
        Resources,
        cpu_milli=st.integers(0, 2_500),
        memory_mib=st.integers(0, 600),
        disk_mib=st.integers(0, 60),
        gpu_milli=st.sampled_from([0, 0, 1_000]),
    ),
    ports=st.sampled_from([(), (25_000,), (25_001, 25_002)]),
)


class Apiserver:
    """The true state, and the events that the watch has not delivered yet. Nodes reject pods that do not fit, in the
    order of creation.
    """

    def __init__(self) -> None:
        self.pods: dict[str, tuple[str, Demand]] = {}
        self.running: set[str] = set()
        self.untold: deque[tuple[str, str, Demand | None]] = deque()  # pod, node, demand; None: it ended

    def create(self, pod: str, node: str, demand: Demand) -> None:
        self.pods[pod] = (node, demand)
        self.untold.append((pod, node, demand))

    def end(self, pod: str) -> None:
        node, _ = self.pods.pop(pod)
        self.running.discard(pod)
        self.untold.append((pod, node, None))

    def held(self, node: str) -> list[Demand]:
        return [demand for pod, (at, demand) in self.pods.items() if at == node and pod in self.running]


def total(demands_: list[Demand]) -> Resources:
    return sum((demand.held for demand in demands_), NOTHING)


def fits(demand: Demand, held_by_others: list[Demand]) -> bool:
    ports = {port for other in held_by_others for port in other.ports}
    on_node = len(held_by_others) < PODS_MAX and not ports.intersection(demand.ports)
    return on_node and not any(map(_exceeds, KINDS, repeat(demand), repeat(total(held_by_others))))


def _exceeds(kind: str, demand: Demand, others: Resources) -> bool:
    """Return whether a kind of resources is short. A node checks only kinds that a pod requests: others may have
    overfilled the rest."""
    wanted: int = getattr(demand.held, kind)
    return wanted > 0 and getattr(others, kind) + wanted > getattr(CAPACITY, kind)


class TwoSchedulers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(lambda: 1)
        for name in NODES:
            self.ledger.put_node(Node(Hostname(name), f"uid-{name}", "", CAPACITY, PODS_MAX, {}, ports=PORTS))
        self.apiserver = Apiserver()
        self.known: dict[str, tuple[str, Demand]] = {}  # events of external pods that were delivered
        self.ours: dict[str, tuple[str, Demand]] = {}  # launched pods whose end was not delivered
        self.free_resources: dict[str, FreeResources] = {}
        self.claims: list[Claim] = []
        self.numbers = count()

    # The other scheduler, and pods that end by themselves.

    @rule(node=nodes, demand=demands)
    def others_create(self, node: str, demand: Demand) -> None:
        self.apiserver.create(f"theirs-{next(self.numbers)}", node, demand._replace(is_foreign=True))

    @rule(at=st.integers(0, 50))
    def a_pod_ends(self, at: int) -> None:
        if pods := sorted(self.apiserver.pods):
            self.apiserver.end(pods[at % len(pods)])

    @rule()
    def kubelets_poll(self) -> None:
        """Start the pods that fit on each node, and end the others."""
        for pod, (node, demand) in list(self.apiserver.pods.items()):
            if pod in self.apiserver.running:
                continue
            if fits(demand, self.apiserver.held(node)):
                self.apiserver.running.add(pod)
            else:
                self.apiserver.end(pod)

    # News.

    @rule(most=st.integers(1, 8))
    def news_come(self, most: int) -> None:
        for _ in range(min(most, len(self.apiserver.untold))):
            pod, node, demand = self.apiserver.untold.popleft()
            if demand is None:
                self.ledger.drop_pod(pod)
                self.known.pop(pod, None)
                self.ours.pop(pod, None)
            else:
                self.ledger.put_pod(pod, node, demand)
                if demand.is_foreign:
                    self.known[pod] = (node, demand)

    @rule()
    def relist_all(self) -> None:
        self.apiserver.untold.clear()
        there = self.apiserver.pods
        self.ledger.void_resources()
        self.free_resources.clear()
        for pod in self.ledger.keep_pods(there.keys()):
            self.ledger.drop_pod(pod)  # as after a query of each: it has ended unseen
        for pod, (node, demand) in there.items():
            self.ledger.put_pod(pod, node, demand)
        self.known = {pod: found for pod, found in there.items() if found[1].is_foreign}
        self.ours = {pod: found for pod, found in there.items() if not found[1].is_foreign}

    # Peloton.

    @rule()
    def resources_are_announced(self) -> None:
        withdrawn, announced = self.ledger.changes()
        for resources_id in withdrawn:
            self.free_resources.pop(resources_id, None)
        self.free_resources |= {on_node.resources_id: on_node for on_node in announced}

    @rule(node=nodes)
    def we_claim(self, node: str) -> None:
        found = [on_node for on_node in self.free_resources.values() if on_node.hostname == node]
        if found:
            for on_node in found:
                del self.free_resources[on_node.resources_id]
            self.claims.append(Claim(Hostname(node), f"uid-{node}", tuple(on_node.resources_id for on_node in found)))

    @rule(wanted=st.lists(demands, max_size=4), is_repeated=st.booleans())
    def we_launch(self, wanted: list[Demand], is_repeated: bool) -> None:
        if not self.claims:
            return
        self._launch(self.claims[-1] if is_repeated else self.claims.pop(), wanted)

    def _launch(self, claim: Claim, wanted: list[Demand]) -> Mapping[str, str]:
        """Launch pods and return the rejected ones."""
        pods = [(f"ours-{next(self.numbers)}", demand) for demand in wanted]
        refused = self.ledger.use(claim, pods)
        for pod, demand in pods:
            if pod not in refused:
                self.ours[pod] = (claim.hostname, demand)
                self.apiserver.create(pod, claim.hostname, demand)
                held_by_others = [
                    d for p, (at, d) in {**self.ours, **self.known}.items() if at == claim.hostname and p != pod
                ]
                assert fits(demand, held_by_others), f"{pod} was launched beside {held_by_others}"
        return refused

    @rule(cpu_milli=st.sampled_from([10, 1_000]), port_count=st.integers(0, 1), pod_count=st.integers(1, 8))
    def we_place(self, cpu_milli: int, port_count: int, pod_count: int) -> None:
        """Place pods by the delivered events; none of them is rejected."""
        self.resources_are_announced()
        hosts = HostCache(1.0)
        hosts.add_resources(list(self.free_resources.values()))
        shape = PodShape(Resources(cpu_milli), port_count)
        lease = hosts.acquire(JOB, [(shape, pod_count)], 0.0)
        batch = place(JOB, [ReadyGang(shape, ((at, 1),)) for at in range(pod_count)], lease)
        claims = hosts.claim(lease.lease_id, [placement.hostname for placement in batch.placements])
        for placement in batch.placements:
            claim = claims[placement.hostname]
            for resources_id in claim.resources_ids:
                del self.free_resources[resources_id]
            wanted = [Demand(shape.resources, ports=pod.ports) for pod in placement.pods]
            assert {} == self._launch(claim, wanted)

    @invariant()
    def no_more_is_free_than_announced(self) -> None:
        """The announced resources are at most the free ones by the delivered events, whatever other
        schedulers do now.
        """
        for host in self.ledger.hosts():
            known = [demand for at, demand in {**self.ours, **self.known}.values() if at == host.hostname]
            left = CAPACITY - total(known)
            assert host.free == Resources.each(lambda amount: max(amount, 0), left)

    @invariant()
    def nodes_are_never_overfull(self) -> None:
        for node in NODES:
            held = self.apiserver.held(node)
            assert total(held).fits_in(CAPACITY)
            assert len(held) <= PODS_MAX

    def teardown(self) -> None:
        """All free resources are announced after all events, and every remaining pod runs."""
        self.kubelets_poll()
        while self.apiserver.untold:
            self.news_come(100)
        self.ledger.void_resources()
        free_resources = {on_node.hostname: on_node for on_node in self.ledger.changes().announced}
        for node in NODES:
            held = self.apiserver.held(node)
            left = CAPACITY - total(held)
            on_node = free_resources.get(Hostname(node))
            announced = (on_node.free, on_node.pod_slots) if on_node is not None else None
            assert ((left, PODS_MAX - len(held)) if left.cpu_milli else None) == announced


TestTwoSchedulers = TwoSchedulers.TestCase
TestTwoSchedulers.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
