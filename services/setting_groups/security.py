"""Settings of identity and permissions."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import ALL, URL, WORD, one_of, setting


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
    auth_oidc_issuer: str = setting(
        "",
        "api web",
        "address of the OIDC [issuer](security.md#identity) whose JWTs are accepted; its keys are found by discovery",
        form=URL,
    )
    auth_oidc_audience: str = setting(
        "", "api web", "audience that JWTs must name, the client id of Peloton at the issuer", form=WORD
    )
    auth_oidc_login_client: str = setting(
        "",
        "api",
        "client id of [peloton login](security.md#sign-in-of-commands) at the issuer, a public client whose tokens are "
        "accepted, too; empty: the audience",
        form=WORD,
    )
    auth_oidc_name_claim: str = setting(
        "email", "api", "claim with the name of a user; `email` counts when the issuer has verified it", form=WORD
    )
    auth_oidc_groups_claim: str = setting("groups", "api", "claim with the groups of a user", form=WORD)
    auth_oidc_ca_file: str = setting(
        "", "api web", "PEM file of the authorities of the issuer's certificate; empty: those of the system"
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
    quota_submissions_per_minute: int = setting(
        0,
        "api worker",
        "jobs that each user may create in a minute, at each api, and by schedules at each worker; 0: any number",
        low=0,
        high=1_000_000,
    )
    quota_active_pods: int = setting(
        0,
        "api worker",
        "[active pods](security.md#quotas) that each user may have; 0: any number",
        low=0,
        high=100_000_000,
    )
    quotas_file: str = setting(
        "",
        "api worker",
        "TOML file with [quotas](security.md#quotas) of users, groups and roles, which replace those of the settings; "
        "read again when it changes",
    )
    auth_anonymous: str = setting(
        "",
        "api",
        "role on the cluster of callers without credentials; empty: none if there is a file of tokens, users or roles, "
        "and admin otherwise",
        form=one_of("none", "reader", "submitter", "operator", "admin"),
    )
