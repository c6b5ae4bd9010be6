"""Server of role web."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from peloton.extras import require_extra
from services.role_settings import read_mesos_access
from services.servers import asgi_server
from services.settings import Settings
from services.tls.transport import Transport
from services.web.app import WebSettings, create_app
from services.web.bodies import TIMEOUT_S_MAX
from services.web.codec import Decodes
from services.web.oidc import OidcClient
from services.web.sessions import read_secret
from services.web.sign_in import SignInSettings
from services.web.terminal import MESSAGE_BYTES_MAX

log = logging.getLogger(__name__)

REQUEST_S = TIMEOUT_S_MAX + 60.0
"""Time for a request: a streamed one lasts as long as its call."""


async def run(settings: Settings, stop: asyncio.Event, serves: Callable[[], None], transport: Transport) -> None:
    """Serve until ``stop``; call ``serves`` when browsers can connect. Raises Unavailable when the port is in use,
    InvalidArgument for invalid addresses.
    """
    names = tuple(name for one in settings.web_hosts.split(",") if (name := one.strip()))
    web = WebSettings(
        settings.api,
        settings.temporal_ui,
        names,
        read_mesos_access(settings),
        settings.temporal_namespace,
        transport=transport,
        sign_in=_make_sign_in(settings),
        codec=_make_codec(settings),
        codec_origins=tuple(each for one in settings.web_codec_origins.split(",") if (each := one.strip())),
    )
    app = create_app(web)

    def listens(port: int) -> None:
        log.info("pages at %s://%s:%d/", transport.http_scheme, settings.host, port)
        serves()

    async def end() -> None:
        """End the streams of pages at once."""
        app.state.gateway.close()
        await app.state.hub.close()

    await asgi_server.serve(
        app, "web", settings.host, settings.web_port, stop=stop, serves=listens, end=end,
        transport=transport, request_s=REQUEST_S,
        ws="websockets-sansio", ws_max_size=MESSAGE_BYTES_MAX,
    )  # fmt: skip


def _make_codec(settings: Settings) -> Decodes | None:
    """Return the codec of Temporal's payloads. Raises InvalidArgument for a bad keyring."""
    if not settings.secrets_keyring_file:
        return None
    require_extra("secure", "cryptography", "PELOTON_SECRETS_KEYRING_FILE")
    from services.secrets.keyring import KeyringFile
    from services.secrets.payload_codec import EncryptingCodec

    return EncryptingCodec(KeyringFile(settings.secrets_keyring_file), encrypts=False)


def _make_sign_in(settings: Settings) -> SignInSettings:
    """Return how viewers sign in. Raises InvalidSettings for a bad file."""
    oidc = None
    if settings.auth_oidc_issuer:
        require_extra("secure", "jwt", "PELOTON_AUTH_OIDC_ISSUER")
        secret = read_secret(settings.web_oidc_secret_file) if settings.web_oidc_secret_file else ""
        oidc = OidcClient(
            settings.auth_oidc_issuer, settings.auth_oidc_audience, secret, ca_file=settings.auth_oidc_ca_file
        )
    return SignInSettings(oidc, settings.web_session_key_file, float(settings.web_session_s))
