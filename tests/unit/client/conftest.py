"""The client against a fake API."""

from tests.unit.cli.conftest import agent, api

__all__ = ["agent", "api"]
