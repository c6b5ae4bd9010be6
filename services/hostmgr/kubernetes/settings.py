"""Settings of one Kubernetes cluster."""

from __future__ import annotations

import hashlib
import re
from dataclasses import KW_ONLY, dataclass

from peloton.errors import InvalidArgument
from services.hostmgr.driver import Ports

IN_CLUSTER = "in-cluster"
"""Value of ``access`` for a host manager that is a pod of the cluster and uses its service account."""
_OWN_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_FOLDER = re.compile(r"(/[\w.-]+)+", re.ASCII)
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII)
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
JOB_LABEL, CLUSTER_LABEL = "peloton.io/job", "peloton.io/cluster"
"""Labels of all objects that Peloton makes for a job: its id, and the name of the cluster."""
PORT_MAX = 65_535


@dataclass(frozen=True)
class KubernetesSettings:
    """Raises InvalidArgument naming the setting and its rule."""

    access: str  # path of a kubeconfig, or IN_CLUSTER
    _: KW_ONLY
    context: str = ""  # of the kubeconfig; empty: its current one
    cluster: str = "local"
    namespace: str = "peloton"  # of Peloton's pods
    node_selector: tuple[tuple[str, str], ...] = ()  # labels of the nodes to use; empty: all nodes
    taint: str = "peloton.io/dedicated"  # key of a taint that Peloton's pods tolerate
    taints_used: frozenset[str] = frozenset()  # keys of taints whose nodes take external pods that tolerate them
    priority_class: str = "peloton"
    log_retention_s: float = 600.0  # seconds for which an ended pod, with its log, is kept after its end is stored
    image_timeout_s: float = 900.0  # timeout of the pulls of a pod's images
    lost_node_s: float = 60.0  # seconds after which pods of an unreachable node are lost
    slack_period_s: float = 15.0  # between measurements of cpu for revocable pods; 0: none
    default_image: str = "busybox:stable"  # of pods without an image
    ports: Ports = ((25_000, 29_999),)  # of hosts, for dynamic ports of pods
    admission_timeout_s: float = 300.0  # seconds in which an admitted pod is scheduled, or is put back
    gang_services: bool = False  # gangs have a Service, and their pods DNS names
    volumes: str = ""  # folder of each node for its volumes; empty: nodes keep none
    owner_kinds: str = ""  # path of a file with further kinds of owners; empty: none

    def __post_init__(self) -> None:
        if not LABEL_VALUE.fullmatch(self.cluster) or not self.cluster:
            raise InvalidArgument(
                f"PELOTON_CLUSTER={self.cluster!r}: on Kubernetes the name must also end with a letter or digit"
            )
        if not _NAME.fullmatch(self.namespace):
            raise InvalidArgument(
                f"PELOTON_KUBERNETES_NAMESPACE={self.namespace!r}: want up to 63 of a-z, 0-9 and -, no - at the ends"
            )
        if not LABEL_KEY.fullmatch(self.taint):
            raise InvalidArgument(f"PELOTON_KUBERNETES_TAINT={self.taint!r}: want the key of a taint")
        if self.volumes and (not _FOLDER.fullmatch(self.volumes) or {".", ".."} & {*self.volumes.split("/")}):
            raise InvalidArgument(
                f"PELOTON_KUBERNETES_VOLUMES={self.volumes!r}: want an absolute path like /var/lib/peloton/volumes"
            )


def own_name(cluster: str) -> str:
    """Return ``peloton-CLUSTER``, the prefix of the names of Peloton's objects: several clusters may share a
    namespace. Characters that Kubernetes does not allow are replaced, and a digest keeps such clusters distinct."""
    if _OWN_NAME.fullmatch(cluster):
        return f"peloton-{cluster}"
    digest = hashlib.sha256(cluster.encode()).hexdigest()[:8]
    return f"peloton-{re.sub('[^a-z0-9]', '-', cluster.lower())}-{digest}"


def read_node_selector(text: str) -> tuple[tuple[str, str], ...]:
    """Parse ``key=value,key=value``. Raises InvalidArgument."""
    pairs = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = part.partition("=")
        if not (separator and LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value)):
            raise InvalidArgument(f"PELOTON_KUBERNETES_NODE_SELECTOR={text!r}: {part!r} is not KEY=VALUE of a label")
        pairs.append((key, value))
    return tuple(pairs)


def read_taints(text: str) -> frozenset[str]:
    """Parse ``key,key``. Raises InvalidArgument."""
    keys = frozenset(filter(None, (part.strip() for part in text.split(","))))
    for key in sorted(keys):
        if not LABEL_KEY.fullmatch(key):
            raise InvalidArgument(f"PELOTON_KUBERNETES_TAINTS_USED={text!r}: {key!r} is not the key of a taint")
    return keys


def read_ports(text: str) -> Ports:
    """Parse ``first-last``; an empty text means no ports. Raises InvalidArgument."""
    if not text:
        return ()
    first, separator, last = text.partition("-")
    is_range = separator and first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last) <= PORT_MAX
    if not is_range:
        raise InvalidArgument(f"PELOTON_KUBERNETES_PORTS={text!r}: want FIRST-LAST with 1 <= FIRST <= LAST <= 65535")
    return ((int(first), int(last)),)
