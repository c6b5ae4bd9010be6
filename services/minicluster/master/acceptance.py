"""One ACCEPT in progress."""

from __future__ import annotations

from services.minicluster.model import Agent, Framework
from services.minicluster.resources import Resources


class Acceptance:
    """`left` is what the operations so far have left of the offers; it shrinks or changes kind with each."""

    __slots__ = ("agent", "framework", "left", "role")

    def __init__(self, framework: Framework, agent: Agent, role: str, left: Resources) -> None:
        self.framework = framework
        self.agent = agent
        self.role = role
        self.left = left
