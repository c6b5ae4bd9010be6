"""Every topic by its name."""

from __future__ import annotations

from services.web.live import Topic
from services.web.topics import overview, service

TOPICS = {
    "overview": Topic(overview.look, period_s=2.0),
    "service": Topic(service.look, period_s=1.0, takes_argument=True),
}
