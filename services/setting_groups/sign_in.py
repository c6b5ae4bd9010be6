"""Settings of sign-in to the pages."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import DAY_S, WEEK_S, setting


@dataclass(frozen=True)
class SignInSettings:
    web_session_key_file: str = setting(
        "",
        "web",
        "file with a secret of at least 32 characters that encrypts the cookies of [sessions](security.md#sign-in); "
        "empty: sessions end with the process",
    )
    web_session_s: int = setting(
        DAY_S // 2, "web", "longest time of a session, seconds; it also ends with its token", low=60, high=WEEK_S
    )
    web_codec_origins: str = setting(
        "",
        "web",
        "origins of pages that may have Temporal's payloads decrypted, with commas, such as `http://127.0.0.1:8233`; "
        "see [payloads](operations.md#temporals-payloads)",
    )
    web_oidc_secret_file: str = setting(
        "", "web", "file with the secret of Peloton as a client of the issuer; empty: it has none"
    )
