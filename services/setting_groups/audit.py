"""Settings of the audit log."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import one_of, setting


@dataclass(frozen=True)
class AuditSettings:
    audit: str = setting(
        "",
        "api hostmgr",
        "[audit log](security.md#audit) of changes, refusals and sign-ins: `required` has answers wait for their "
        "entries and refuses changes while it cannot be written; empty: on, if the cluster asks for credentials, and "
        "off otherwise; host managers, of changes by [objects of pools](kubernetes/pools-as-objects.md): as the api",
        form=one_of("off", "on", "required"),
    )
    audit_reads: bool = setting(False, "api", "whether calls that change nothing are in the audit log, too")
    audit_file: str = setting(
        "", "api hostmgr", "file to which each entry of the audit log is appended as a line of JSON; empty: none"
    )
