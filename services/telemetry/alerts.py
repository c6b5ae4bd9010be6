"""Alert rules of Prometheus, each with its runbook: ``python -m services.telemetry.alerts`` writes
deploy/observability/alerts.yaml and docs/alerts.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULES, RUNBOOKS = ROOT / "deploy" / "observability" / "alerts.yaml", ROOT / "docs" / "alerts.md"
RUNBOOKS_URL = "docs/alerts.md"
CRITICAL, WARNING = "critical", "warning"
"""Severities: work stops or there is a bug, and it gets worse until a person looks."""


@dataclass(frozen=True)
class Alert:
    name: str
    severity: str
    lasts: str  # time for which the expression must hold
    expr: str
    summary: str
    means: str
    do: tuple[str, ...]

    @property
    def runbook(self) -> str:
        return f"{RUNBOOKS_URL}#{self.name.lower()}"


ALERTS = (
    Alert(
        "PelotonNoLeader",
        CRITICAL,
        lasts="1m",
        expr=(
            "group by (lease) (max_over_time(peloton_leader_leads[1h])) unless group by (lease) "
            "(peloton_leader_leads == 1)"
        ),
        summary="No process leads {{ $labels.lease }}.",
        means=(
            "A lease that had a leader within the last hour has none. Without `resmgr` nothing is admitted; "
            "without `hostmgr/CLUSTER` nothing starts or ends on that cluster, and running pods keep running."
        ),
        do=(
            "`peloton overview` names the roles without a leader, `peloton admin doctor` the reason.",
            (
                "Look for the processes of the role: a standby takes over within the time of `PELOTON_LEADER_TTL_S`, "
                "so either none runs, or none reaches the database."
            ),
        ),
    ),
    Alert(
        "PelotonProcessDown",
        CRITICAL,
        lasts="2m",
        expr='up{job="peloton"} == 0',
        summary="Prometheus cannot scrape {{ $labels.instance }}.",
        means="The process has ended, hangs, or cannot be reached from Prometheus.",
        do=(
            "Ask its supervisor for the state, and its log for the last lines.",
            "A hung process names the loop that hangs in its health file and in its log.",
        ),
    ),
    Alert(
        "PelotonProcessRestarts",
        WARNING,
        lasts="0m",
        expr="changes(peloton_process_started_seconds[30m]) > 3",
        summary="{{ $labels.role }} at {{ $labels.instance }} started {{ $value }} times in half an hour.",
        means="The process ends again and again: leaders that lose their lease, memory that runs out, or a fault.",
        do=(
            "Its log says why before each end; exit code 137 is a kill by the kernel for memory.",
            "With `leadership lost` see [PelotonLeaseLate](#pelotonleaselate).",
        ),
    ),
    Alert(
        "PelotonLeaseLate",
        WARNING,
        lasts="0m",
        expr="sum by (lease) (increase(peloton_leader_late_renewals_total[10m])) > 3",
        summary="The lease {{ $labels.lease }} is renewed late.",
        means=(
            "The leader could not renew its lease in time several times: the database is slow, or the process has"
            " no CPU. It loses leadership when this continues."
        ),
        do=(
            "Compare with [PelotonDatabaseSlow](#pelotondatabaseslow) and the load of the machine.",
            "On a machine that cannot be quicker, raise `PELOTON_LEADER_TTL_S`.",
        ),
    ),
    Alert(
        "PelotonBrokenInvariant",
        CRITICAL,
        lasts="0m",
        expr="increase(peloton_resmgr_broken_invariants_total[15m]) > 0",
        summary="The resource manager found {{ $value }} broken invariants.",
        means="The audit of a cycle found accounts that contradict the rows of pods. This is a bug of Peloton.",
        do=(
            "Keep the log of the resource manager: each fault is a line with `invariant broken`.",
            (
                "`peloton admin check` says whether stored rows are affected; a restart of the resource manager reads"
                " them again."
            ),
            "Report it with both outputs.",
        ),
    ),
    Alert(
        "PelotonQueueStuck",
        WARNING,
        lasts="30m",
        expr=(
            "(sum by (pool) (peloton_pool_queue_length) > 0) unless (sum by (pool) "
            "(increase(peloton_pool_admitted_total[30m])) > 0)"
        ),
        summary="{{ $value }} pods wait in {{ $labels.pool }}, and none was admitted for half an hour.",
        means=(
            "Gangs wait in the queue of a pool and nothing is admitted there: the pool is at its limit or "
            "entitlement, the first gang fits nowhere, or nothing that holds resources ends."
        ),
        do=(
            "`peloton respool why POOL` says what the first gang of each queue waits for.",
            "`peloton respool tree` compares allocation, entitlement and limit.",
        ),
    ),
    Alert(
        "PelotonAllocationLow",
        WARNING,
        lasts="30m",
        expr=(
            "sum by (pool, kind) (peloton_pool_allocation) < 0.5 * sum by (pool, kind) (peloton_pool_entitlement)"
            " and sum by (pool, kind) (peloton_pool_demand) > 0.1 * sum by (pool, kind) "
            "(peloton_pool_entitlement)"
        ),
        summary="{{ $labels.pool }} holds less than half of the {{ $labels.kind }} that it may use, while pods wait.",
        means=(
            "Entitlement cannot be used: pods are admitted and find no host, or hosts that the pool may use are down."
        ),
        do=(
            "`peloton job why JOB` of a waiting job names what hosts lack.",
            "`peloton host query` shows hosts that are down, in maintenance or reserved.",
        ),
    ),
    Alert(
        "PelotonAdmissionSlow",
        WARNING,
        lasts="10m",
        expr="histogram_quantile(0.99, sum by (le) (rate(peloton_resmgr_cycle_time_seconds_bucket[5m]))) > 2.5",
        summary="A cycle of admission takes {{ $value }} s.",
        means=(
            "The resource manager needs seconds for a cycle: very many waiting gangs of different shapes, a slow "
            "database, or no CPU."
        ),
        do=(
            "Compare `peloton_db_duration_seconds` of the role resmgr with the duration of its cycles.",
            "`peloton respool tree` names the pools with the longest queues.",
        ),
    ),
    Alert(
        "PelotonNoHosts",
        CRITICAL,
        lasts="5m",
        expr='sum by (cluster) (peloton_hosts_registered{state="up"}) == 0',
        summary="Cluster {{ $labels.cluster }} has no host that takes pods.",
        means="All hosts are lost, in maintenance, or the cluster's control plane knows none.",
        do=(
            "`peloton host query` lists the hosts.",
            "Check the Mesos master or the apiserver of the cluster.",
        ),
    ),
    Alert(
        "PelotonHostsUnavailable",
        WARNING,
        lasts="15m",
        expr=(
            'sum by (cluster) (peloton_hosts_registered{state="unavailable"}) / '
            "sum by (cluster) (peloton_hosts_registered) > 0.1"
        ),
        summary="More than a tenth of the hosts of {{ $labels.cluster }} takes no pods.",
        means="Hosts are in maintenance, closed or lost.",
        do=(
            "`peloton host query` shows their states, `peloton host events` what happened.",
            (
                "A maintenance that does not progress waits for the SLA of a service: see "
                "[PelotonDisruptionsRefused](#pelotondisruptionsrefused)."
            ),
        ),
    ),
    Alert(
        "PelotonLaunchesFail",
        WARNING,
        lasts="10m",
        expr=(
            'sum by (cluster) (rate(peloton_launch_pods_total{outcome="failed"}[10m])) / sum by (cluster) '
            "(rate(peloton_launch_pods_total[10m])) > 0.05"
        ),
        summary="The cluster {{ $labels.cluster }} rejects {{ $value | humanizePercentage }} of the launches.",
        means=(
            "The cluster refuses pods after the host manager has chosen a host: offers that are gone, or rights "
            "that lack."
        ),
        do=(
            "The events of a pod say why: `peloton pod events JOB INSTANCE`.",
            "Read the log of the host manager.",
        ),
    ),
    Alert(
        "PelotonReportsWait",
        WARNING,
        lasts="5m",
        expr="peloton_status_waiting > 10000",
        summary="{{ $value }} reports of pods wait in the host manager of {{ $labels.cluster }}.",
        means=(
            "Reports arrive faster than the database takes them. States of pods are shown late, and beyond "
            "100,000 reports are dropped and repeated by the cluster."
        ),
        do=(
            "See [PelotonDatabaseSlow](#pelotondatabaseslow).",
            "Look for jobs whose pods fail and start at once.",
        ),
    ),
    Alert(
        "PelotonReconcileFails",
        WARNING,
        lasts="0m",
        expr='sum by (cluster) (increase(peloton_reconcile_rounds_total{outcome="failed"}[15m])) > 3',
        summary="Reconciliation with {{ $labels.cluster }} fails.",
        means=(
            "The host manager cannot compare its pods with those of the cluster, so that lost pods are noticed late."
        ),
        do=(
            "The log of the host manager has the error.",
            "Check the control plane of the cluster.",
        ),
    ),
    Alert(
        "PelotonDisruptionsRefused",
        WARNING,
        lasts="1h",
        expr="sum(rate(peloton_sla_refused_total[10m])) > 0",
        summary="The SLA of services has kept pods from moving for an hour.",
        means=(
            "A maintenance, a rebalancing or an update asks for pods that the SLA of their service keeps, again "
            "and again: too many of its instances are unavailable."
        ),
        do=(
            (
                "`peloton overview` names the maintenance that waits; `peloton job stateless get JOB` shows the "
                "instances that are not available."
            ),
            "Repair the service, or force the maintenance.",
        ),
    ),
    Alert(
        "PelotonDatabaseErrors",
        CRITICAL,
        lasts="5m",
        expr='sum by (role) (rate(peloton_db_errors_total{error!="conflict"}[5m])) > 0.1',
        summary="Transactions of {{ $labels.role }} fail.",
        means=(
            "The database does not answer, refuses connections, or a statement fails. Nothing is lost: calls are "
            "refused and repeated."
        ),
        do=(
            "`peloton admin doctor` tries the database.",
            (
                "Check connections (`peloton_db_connections` against the limit of the server), disk and load of the "
                "database."
            ),
        ),
    ),
    Alert(
        "PelotonDatabaseSlow",
        WARNING,
        lasts="10m",
        expr="histogram_quantile(0.99, sum by (le, role) (rate(peloton_db_duration_seconds_bucket[5m]))) > 1",
        summary="Transactions of {{ $labels.role }} take {{ $value }} s.",
        means="One transaction in a hundred takes longer than a second. Leases are renewed late when this continues.",
        do=(
            "On SQLite one writer at a time has its turn: move to PostgreSQL when writers wait for each other.",
            "On PostgreSQL look for locks, missing vacuum and a slow disk.",
        ),
    ),
    Alert(
        "PelotonTemporalErrors",
        WARNING,
        lasts="10m",
        expr="sum by (role) (rate(peloton_temporal_errors_total[5m])) > 0.1",
        summary="Calls of Temporal by {{ $labels.role }} fail.",
        means="Temporal does not answer, or limits its clients. Jobs wait and continue when it is back.",
        do=(
            "`peloton admin doctor` tries Temporal.",
            (
                "`ResourceExhausted` in the log is a limit of the namespace: see [the settings of "
                "Temporal](temporal.md)."
            ),
        ),
    ),
    Alert(
        "PelotonSignalsWait",
        WARNING,
        lasts="10m",
        expr="sum by (role) (peloton_wakeups_waiting) > 1000",
        summary="{{ $value }} signals to workflows wait in {{ $labels.role }}.",
        means="Workflows learn of changes late: Temporal takes signals more slowly than they come.",
        do=(
            "See [PelotonTemporalErrors](#pelotontemporalerrors).",
            "Look for a job whose pods change all the time.",
        ),
    ),
    Alert(
        "PelotonActivitiesFail",
        WARNING,
        lasts="10m",
        expr=(
            'sum by (activity) (rate(peloton_activity_duration_seconds_count{outcome="failed"}[5m])) / sum by '
            "(activity) (rate(peloton_activity_duration_seconds_count[5m])) > 0.2"
        ),
        summary="{{ $value | humanizePercentage }} of the activities {{ $labels.activity }} fail.",
        means="Workers cannot do a step of workflows and repeat it. The jobs concerned make no progress meanwhile.",
        do=(
            "`peloton overview` shows failing activities with their error.",
            "The log of the workers has the stacks of bugs.",
        ),
    ),
    Alert(
        "PelotonCertificateExpires",
        WARNING,
        lasts="1h",
        expr="min by (role, instance) (peloton_tls_certificate_expiry_seconds) - time() < 14 * 86400",
        summary="The certificate of {{ $labels.role }} at {{ $labels.instance }} expires within two weeks.",
        means="After its end no other role and no client talks to the process.",
        do=(
            "Issue a new certificate into the same files: the process reads it within seconds, without a restart.",
            "See [transport](transport.md) for who signs it.",
        ),
    ),
    Alert(
        "PelotonCallsFail",
        CRITICAL,
        lasts="0m",
        expr='sum by (method) (increase(peloton_grpc_calls_total{code=~"INTERNAL|UNKNOWN"}[15m])) > 0',
        summary="{{ $labels.method }} fails with an internal error.",
        means="A call ended with INTERNAL or UNKNOWN: a bug, whose stack is in the log of the role.",
        do=(
            "Search the log for ERROR at that time.",
            "Report it with the stack and the request.",
        ),
    ),
    Alert(
        "PelotonCallsRefused",
        WARNING,
        lasts="15m",
        expr="sum by (rule) (rate(peloton_api_refused_total[5m])) > 0",
        summary="The api refuses calls by the bound {{ $labels.rule }}.",
        means=("Clients add work faster than it is done. Refused calls have changed nothing, and clients repeat them."),
        do=(
            "`peloton_api_backlog` shows which count is at its bound.",
            "Add workers or apis, or [raise the bound](operations.md#back-pressure).",
        ),
    ),
)


def render_rules() -> str:
    """Return the file of rules. JSON is YAML, and quotes expressions safely."""
    rules = [
        {
            "alert": one.name,
            "expr": one.expr,
            "for": one.lasts,
            "labels": {"severity": one.severity},
            "annotations": {"summary": one.summary, "runbook": one.runbook},
        }
        for one in ALERTS
    ]
    head = "# Generated by python -m services.telemetry.alerts; do not edit.\n"
    return head + json.dumps({"groups": [{"name": "peloton", "rules": rules}]}, indent=2) + "\n"


def render_runbooks() -> str:
    sections = [
        "\n".join(
            [
                f"## {one.name}",
                "",
                f"*{one.severity}*, when this holds for {one.lasts}:",
                "",
                f"```text\n{one.expr}\n```",
                "",
                one.means,
                "",
                *(f"{number}. {step}" for number, step in enumerate(one.do, 1)),
                "",
            ]
        )
        for one in ALERTS
    ]
    return "\n".join([OPENING, *sections])


OPENING = """# Alerts

Generated from the table of alerts by `python -m services.telemetry.alerts`; do not edit.

[deploy/observability/alerts.yaml](../deploy/observability/alerts.yaml) has the rules for Prometheus, which expects the
scraped processes under the job `peloton`. Each alert names its section here in the annotation `runbook`. *critical* is
for what stops work or is a bug, *warning* for what gets worse until a person looks. The metrics are in
[Metrics](metrics.md).
"""

if __name__ == "__main__":
    RULES.parent.mkdir(parents=True, exist_ok=True)
    RULES.write_text(render_rules(), encoding="utf-8")
    RUNBOOKS.write_text(render_runbooks(), encoding="utf-8")
