"""Settings of identity and permissions."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import ALL, one_of, setting


@dataclass(frozen=True)
class SecuritySettings:
    auth_tokens_file: str = setting(
        "",
        "api",
        "file with the hashes of bearer [tokens](security.md#identity), written by `peloton admin token`; read again "
        "when it changes",
    )
    auth_basic_file: str = setting(
        "",
        "api",
        "the original's YAML file of users and roles, whose clients send a user name and password",
    )
    auth_roles_file: str = setting(
        "",
        "api",
        "TOML file that binds [roles](security.md#permissions) to users, groups and certificates; read again when it "
        "changes",
    )
    auth_role_token_file: str = setting(
        "",
        ALL,
        "file with a secret of at least 32 characters by which roles identify to each other where they have no "
        "certificates",
    )
    auth_anonymous: str = setting(
        "",
        "api",
        "role on the cluster of callers without credentials; empty: none if there is a file of tokens, users or roles, "
        "and admin otherwise",
        form=one_of("none", "reader", "submitter", "operator", "admin"),
    )
