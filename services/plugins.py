"""Plugins: functions of other distributions that roles call as they start, before any work.

A plugin is an entry point of the group ``peloton.plugins``. Its function takes no arguments and registers a
recipe in ``RECIPES``, a policy in ``POLICIES``, or a driver in ``DRIVERS``.
"""

from __future__ import annotations

import logging
from importlib import metadata

from peloton.errors import InvalidArgument

log = logging.getLogger(__name__)

GROUP = "peloton.plugins"


def load_plugins() -> list[str]:
    """Call the plugins in the order of their names, and return these. Raises InvalidArgument naming one that fails."""
    names = []
    for plugin in sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name):
        try:
            plugin.load()()
        except Exception as error:  # the code is not Peloton's; the role ends
            raise InvalidArgument(
                f"plugin {plugin.name} ({plugin.value}) failed: {error!r}; fix or uninstall it"
            ) from error
        log.info("plugin %s (%s)", plugin.name, plugin.value)
        names.append(plugin.name)
    return names
