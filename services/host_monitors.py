"""Health checks of hosts: the QoS controller and the host advisor of a host manager, which read the same samples."""

from __future__ import annotations

import ssl
import time

from peloton.model.advice import LatencyBounds
from peloton.scheduling.advice import AdvicePolicy
from peloton.scheduling.qos import QosPolicy
from services.hostmgr.advisor import AdvisorSettings, HostAdvisor
from services.hostmgr.host_loads import HostLoads
from services.hostmgr.host_samples import HostSamples, SampleReader
from services.hostmgr.latency_endpoint import LatencyEndpoint
from services.hostmgr.latency_reports import LatencyReports
from services.hostmgr.manager import HostManagerCore
from services.hostmgr.qos import QosController, QosSettings
from services.settings import Settings
from services.storage.jobs.jobs import Jobs


def read_monitor_settings(settings: Settings) -> tuple[QosSettings, AdvisorSettings]:
    """Return the settings of the checks."""
    qos = QosPolicy(
        settings.qos_hot_percent, settings.qos_target_percent, settings.qos_samples, closed_s=settings.qos_closed_s
    )
    bounds = LatencyBounds(settings.p95_orange_ms, settings.p95_red_ms, settings.p99_orange_ms, settings.p99_red_ms)
    advice = AdvicePolicy(
        orange_percent=settings.advisor_orange_percent,
        red_percent=settings.advisor_red_percent,
        bounds=bounds,
        sample_count=settings.advisor_samples,
        margin_percent=settings.advisor_margin_percent,
        hold_s=settings.advisor_hold_s,
    )
    return QosSettings(settings.qos, settings.qos_period_s, qos), AdvisorSettings(advice)


def advising(
    settings: Settings,
    advisor_settings: AdvisorSettings,
    jobs: Jobs,
    core: HostManagerCore,
    qos: QosController,
    context: ssl.SSLContext | None,
) -> tuple[HostAdvisor, HostSamples, LatencyEndpoint | None]:
    """Make the host advisor, its samples and its endpoint for latencies, with TLS if there is a ``context``. Raises
    InvalidArgument when the port of the endpoint cannot be opened.
    """
    reports = LatencyReports(time.monotonic)
    advisor = HostAdvisor(advisor_settings, jobs, reports, on_marked=core.recorder.record_mark)
    readers: list[SampleReader] = [qos, advisor]
    if settings.advisor:
        readers.append(HostLoads(core.cache.loads))
    samples = HostSamples(core, readers, settings.qos_period_s, settings.advisor)
    endpoint = None
    if port := settings.latency_port:
        endpoint = LatencyEndpoint(settings.host, port, reports, context=context)
    return advisor, samples, endpoint
