"""The codec server of Temporal's pages and command: who may have payloads decrypted, and which pages may ask."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import json_format
from temporalio.api.common.v1 import Payload, Payloads

from tests.unit.api_service.test_sign_in import TEMPORAL_PAGES, Pages, pages  # noqa: F401, a fixture

DECODE = "/codec/decode"
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"of alice"')


async def encrypt(pages: Pages, *payloads: Payload) -> bytes:  # noqa: F811
    encoded = await pages.codec.encode(list(payloads))
    return json_format.MessageToJson(Payloads(payloads=encoded)).encode()


async def ask(pages: Pages, body: bytes, name: str = "", **headers: str) -> Any:  # noqa: F811
    bearer = {"authorization": f"Bearer {pages.tokens[name]}"} if name else {}
    return await pages.client.post(DECODE, content=body, headers={**bearer, **headers})


async def test_operators_read_payloads(pages: Pages) -> None:  # noqa: F811
    """An administrator has encrypted and plain ones decrypted; a reader and an unknown caller are refused."""
    body = await encrypt(pages, PLAIN, PLAIN)
    assert b"alice" not in body
    answer = await ask(pages, body, "ada")
    assert [PLAIN, PLAIN] == list(json_format.Parse(answer.text, Payloads()).payloads)
    plain = json_format.MessageToJson(Payloads(payloads=[PLAIN])).encode()
    assert [PLAIN] == list(json_format.Parse((await ask(pages, plain, "ada")).text, Payloads()).payloads)

    assert 403 == (await ask(pages, body, "rita")).status_code
    assert 401 == (await ask(pages, body)).status_code
    assert 401 == (await ask(pages, body, authorization="Bearer ptk_x_y")).status_code


async def test_pages_of_the_settings_alone_may_ask(pages: Pages) -> None:  # noqa: F811
    """A browser asks first, and reads the answer; the origin opens no other address."""
    body = await encrypt(pages, PLAIN)
    first = await pages.client.options(DECODE, headers={"origin": TEMPORAL_PAGES})
    assert (204, TEMPORAL_PAGES) == (first.status_code, first.headers["access-control-allow-origin"])
    assert "authorization" in first.headers["access-control-allow-headers"]
    answer = await ask(pages, body, "ada", origin=TEMPORAL_PAGES)
    assert (200, TEMPORAL_PAGES) == (answer.status_code, answer.headers["access-control-allow-origin"])
    assert "no-store" == answer.headers["cache-control"]

    assert 403 == (await ask(pages, body, "ada", origin="http://evil.example")).status_code
    assert 403 == (await pages.client.get("/settings.json", headers={"origin": TEMPORAL_PAGES})).status_code


async def test_bad_payloads_are_refused(pages: Pages) -> None:  # noqa: F811
    """Text that is no payloads, too many, and ones of another key have clear errors."""
    for body in (b"", b"{", b'{"payloads": 1}', b"\xff", json.dumps({"payloads": [{}] * 1_001}).encode()):
        assert 400 == (await ask(pages, body, "ada")).status_code, body
    broken = Payload(metadata={"encoding": b"binary/encrypted", "encryption-key-id": b"other"}, data=b"x" * 50)
    answer = await ask(pages, json_format.MessageToJson(Payloads(payloads=[broken])).encode(), "ada")
    assert (503, True) == (answer.status_code, "key 'other' is not in the keyring" in answer.text)
