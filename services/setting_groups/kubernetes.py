"""Settings of the Kubernetes driver."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import WEEK_S, WORD, setting


@dataclass(frozen=True)
class KubernetesSettings:
    kubernetes: str = setting(
        "",
        "hostmgr",
        "a [Kubernetes](kubernetes/operations.md) cluster that this host manager runs instead of Mesos: path of a "
        "kubeconfig, or `in-cluster` for the service account of its own pod; empty: Mesos",
    )
    kubernetes_context: str = setting("", "hostmgr", "context of the kubeconfig; empty: its current one")
    kubernetes_namespace: str = setting(
        "peloton", "hostmgr", "namespace of the pods; made at the start if it is not there", form=WORD
    )
    kubernetes_node_selector: str = setting(
        "", "hostmgr", "labels that a node must have to be used, `KEY=VALUE,KEY=VALUE`; empty: all nodes"
    )
    kubernetes_taint: str = setting(
        "peloton.io/dedicated",
        "hostmgr",
        "key of a taint that keeps external pods off nodes dedicated to Peloton, whose pods tolerate it",
        form=WORD,
    )
    kubernetes_admit_ahead: int = setting(
        0,
        "hostmgr",
        "[gated pods](kubernetes/gate.md#autoscalers) without a node that may be admitted at a time although no node "
        "has free resources, so that a node autoscaler adds nodes; 0: none",
        low=0,
        high=10_000,
    )
    kubernetes_taints_used: str = setting(
        "",
        "hostmgr",
        "keys of further taints, `KEY,KEY`: their nodes take [pods of kubectl](kubernetes/gate.md#taints) that "
        "tolerate them, and no other pods of Peloton; nodes with other taints are not used",
    )
    kubernetes_pool: str = setting(
        "",
        "hostmgr",
        "path of the pool of [external pods](kubernetes/pools-for-kubectl.md) for which neither the pod nor its "
        "namespace names a pool; empty: such pods are refused",
    )
    kubernetes_admission_timeout_s: float = setting(
        300.0,
        "hostmgr",
        "seconds in which a scheduler binds an admitted [gated pod](kubernetes/gate.md), or the pod is put back into "
        "the queue of its pool; a namespace may have [its own bound](kubernetes/gate.md#admitted-and-not-scheduled)",
        low=1,
        high=WEEK_S,
    )
    kubernetes_owner_kinds: str = setting(
        "",
        "hostmgr",
        "path of a YAML file with further [kinds of owners](kubernetes/owners.md#further-kinds) that can be held "
        "suspended; empty: the known kinds alone",
    )
    kubernetes_pool_objects: bool = setting(
        False,
        "hostmgr",
        "whether objects of kind ResourcePool in the cluster make [pools](kubernetes/pools-as-objects.md)",
    )
    kubernetes_gang_services: bool = setting(
        False,
        "hostmgr",
        "whether Peloton makes a headless Service for each gang, and members reach each other by "
        "[DNS names](kubernetes/learning.md) instead of addresses of nodes; it needs DNS in the cluster",
    )
    kubernetes_priority_class: str = setting(
        "peloton",
        "hostmgr",
        "priority class of the pods, so that kube-scheduler evicts none of them; made at the start if it is not "
        "there. Empty: pods name none",
        form=WORD,
        may_be_empty=True,
    )
    kubernetes_default_image: str = setting(
        "busybox:stable", "hostmgr", "image of pods that name none: Kubernetes runs no pod without an image", form=WORD
    )
    kubernetes_ports: str = setting(
        "25000-29999",
        "hostmgr",
        "ports of nodes that pods with dynamic ports get, outside of Kubernetes' own NodePort range; empty: none",
        form=WORD,
        may_be_empty=True,
    )
    kubernetes_volumes: str = setting(
        "",
        "hostmgr",
        "folder of each node in which it keeps [volumes](stateful.md#in-kubernetes), like "
        "`/var/lib/peloton/volumes`; empty: nodes keep none",
    )
    kubernetes_log_retention_s: float = setting(
        600.0,
        "hostmgr",
        "seconds for which an ended pod is kept after its end, so that its log can be read; at most 10,000 are kept",
        low=0,
        high=WEEK_S,
    )
    kubernetes_image_timeout_s: float = setting(
        900.0, "hostmgr", "seconds in which the images of a pod must have been pulled, or it fails", low=0, high=WEEK_S
    )
    kubernetes_lost_node_s: float = setting(
        60.0,
        "hostmgr",
        "seconds after which a node that is not ready is no host any more, and its pods are LOST. Kubernetes itself "
        "takes 50 s to notice that a node is silent",
        low=0,
        high=WEEK_S,
    )
    kubernetes_slack_period_s: float = setting(
        15.0,
        "hostmgr",
        "seconds between measurements of the resources that pods leave unused for [revocable "
        "ones](kubernetes/operations.md#oversubscription); at most 200 nodes at a time, the others follow. 0: no "
        "node has slack",
        low=0,
        high=WEEK_S,
    )
