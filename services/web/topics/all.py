"""Topics by name."""

from __future__ import annotations

from services.web.live import Topic
from services.web.topics import hosts, job, jobs, overview, pools, schedules, service, volumes

TOPICS = {
    "host": Topic(hosts.read_host, period_s=2.0, takes_argument=True),
    "host-events": Topic(hosts.read_events, period_s=2.0, takes_argument=True),
    "hosts-events": Topic(hosts.read_events, period_s=3.0),
    "host-map": Topic(hosts.read_map, period_s=3.0),
    "host-names": Topic(hosts.read_names, period_s=10.0),
    "overview": Topic(overview.read, period_s=2.0),
    "jobs": Topic(jobs.read, period_s=2.0, takes_argument=True),
    "job": Topic(job.read, period_s=2.0, takes_argument=True),
    "use": Topic(job.read_use, period_s=5.0, takes_argument=True),
    "instance": Topic(job.read_instance, period_s=2.0, takes_argument=True),
    "instances": Topic(job.read_instances, period_s=2.0, takes_argument=True),
    "problems": Topic(overview.read_problems, period_s=5.0, takes_argument=True),
    "states": Topic(job.read_states, period_s=5.0, takes_argument=True),
    "pools": Topic(pools.tree, period_s=2.0),
    "pool": Topic(pools.pool, period_s=2.0, takes_argument=True),
    "pool-history": Topic(pools.over_time, period_s=30.0, takes_argument=True),
    "cluster-history": Topic(overview.over_time, period_s=30.0, takes_argument=True),
    "schedules": Topic(schedules.read, period_s=5.0, takes_argument=True),
    "volumes": Topic(volumes.read, period_s=5.0),
    "service": Topic(service.read, period_s=1.0, takes_argument=True),
}
