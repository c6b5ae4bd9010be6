"""The client against a fake API."""

from tests.unit.cli.conftest import api

__all__ = ["api"]
