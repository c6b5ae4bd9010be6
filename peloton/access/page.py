"""Writes docs/permissions.md from the table of permissions: ``python -m peloton.access.page``."""

from __future__ import annotations

from pathlib import Path

from peloton.access.rules import MethodRule, Needs
from peloton.access.table import RULES

PAGE = Path(__file__).parents[2] / "docs" / "permissions.md"
INTRODUCTION = """# Permissions

The role that each method of the API needs, and where it is needed. It counts in the pool of the object and in the pools
above; fields of the request lead to the pool. Other names of a service have the same rules. This page is made from
[table.py](../peloton/access/table.py) by `make docs`; [Security](security.md#permissions) explains the roles.

The pool of a schedule is the one of its jobs, at the path that it has now. No method needs the role of a job's
[creator](security.md#owners): any submitter on the pool may change a job, and its pods count for the creator's
[quota](security.md#quotas).
"""


def page() -> str:
    """Return the page, with a table for each service."""
    parts, service = [INTRODUCTION], ""
    for rule in RULES.values():
        found, _, name = rule.method.rpartition("/")
        if found != service:
            service = found
            parts.append(f"\n## {service}\n\n| method | role | on |\n|---|---|---|\n")
        parts.append(f"| {name} | {_role(rule)} | {rule.scope} |\n")
    return "".join(parts)


def _role(rule: MethodRule) -> str:
    return str(rule.role) if rule.needs is Needs.ROLE else "none"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
