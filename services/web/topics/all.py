"""Topics by name."""

from __future__ import annotations

from services.web.live import Topic
from services.web.topics import hosts, job, jobs, overview, pools, schedules, service

TOPICS = {
    "host": Topic(hosts.look_at_host, period_s=2.0, takes_argument=True),
    "host-events": Topic(hosts.look_at_events, period_s=2.0, takes_argument=True),
    "hosts-events": Topic(hosts.look_at_events, period_s=3.0),
    "host-map": Topic(hosts.look_at_map, period_s=3.0),
    "host-names": Topic(hosts.look_at_names, period_s=10.0),
    "overview": Topic(overview.look, period_s=2.0),
    "jobs": Topic(jobs.look, period_s=2.0, takes_argument=True),
    "job": Topic(job.look, period_s=2.0, takes_argument=True),
    "use": Topic(job.look_at_use, period_s=5.0, takes_argument=True),
    "instance": Topic(job.look_at_instance, period_s=2.0, takes_argument=True),
    "instances": Topic(job.look_at_instances, period_s=2.0, takes_argument=True),
    "problems": Topic(overview.look_at_problems, period_s=5.0, takes_argument=True),
    "states": Topic(job.look_at_states, period_s=5.0, takes_argument=True),
    "pools": Topic(pools.tree, period_s=2.0),
    "pool": Topic(pools.pool, period_s=2.0, takes_argument=True),
    "pool-history": Topic(pools.over_time, period_s=30.0, takes_argument=True),
    "cluster-history": Topic(overview.over_time, period_s=30.0, takes_argument=True),
    "schedules": Topic(schedules.look, period_s=5.0, takes_argument=True),
    "service": Topic(service.look, period_s=1.0, takes_argument=True),
}
