"""The access of commands to the agents of Mesos, which serve files and sessions themselves."""

from __future__ import annotations

import http.client
import os
from collections.abc import Mapping
from functools import cache

from peloton.api.mesos_access import MesosAccess
from services.other_variables import CONFIG
from services.role_settings import read_mesos_access
from services.setting_rules import CLI
from services.settings import load
from services.settings_table import SETTINGS

TIMEOUT_S = 20.0


@cache
def access() -> MesosAccess:
    """Return the access that the settings say, by the host manager's names. Raises InvalidArgument."""
    return access_from(os.environ)


def access_from(environment: Mapping[str, str]) -> MesosAccess:
    """Return the access that these variables say: others, which concern roles, are not checked."""
    names = {CONFIG, *(setting.variable for setting in SETTINGS.values() if CLI in setting.rule.readers)}
    return read_mesos_access(load({name: text for name, text in environment.items() if name in names}))


def connect(host: str, port: str, timeout_s: float = TIMEOUT_S) -> http.client.HTTPConnection:
    return access().connection(host, int(port), timeout_s)
