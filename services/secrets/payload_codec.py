"""Codec that encrypts the payloads of Temporal by the keyring. Payloads without its mark are returned as they are."""

from __future__ import annotations

import dataclasses
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec

from services.secrets.keyring import NONCE_BYTES, Keyring, KeyringFile
from services.temporal.payloads import CONVERTER

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ENCODING = b"binary/encrypted"
KEY_ID = "encryption-key-id"
SALT_BYTES = 16
SALT_PAYLOADS_MAX = 2**24
"""Payloads under one derived key: far fewer than random nonces of 96 bits allow (2**32)."""
CIPHERS_MAX = 1_000
"""Derived keys that are remembered: one for each process that wrote recently."""
_BOUND_TO = b"payload of Temporal"


class EncryptingCodec(PayloadCodec):
    """Each process encrypts under keys of its own, derived from the active key and random salts. The data is salt,
    nonce and ciphertext. Runs on the event loop alone."""

    def __init__(self, keyring: KeyringFile, encrypts: bool = True) -> None:
        self._keyring, self._encrypts = keyring, encrypts
        self._ciphers: OrderedDict[tuple[str, bytes], AESGCM] = OrderedDict()
        self._key_id, self._salt, self._count = "", b"", 0

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt payloads. Raises InvalidArgument when the keyring was damaged."""
        if not self._encrypts:
            return list(payloads)
        keyring = self._keyring.keyring
        if keyring.active != self._key_id or self._count >= SALT_PAYLOADS_MAX:
            self._key_id, self._salt, self._count = keyring.active, secrets.token_bytes(SALT_BYTES), 0
        self._count += len(payloads)
        cipher = self._cipher(keyring, self._key_id, self._salt)
        metadata = {"encoding": ENCODING, KEY_ID: self._key_id.encode()}
        encoded = []
        for payload in payloads:
            nonce = secrets.token_bytes(NONCE_BYTES)
            data = self._salt + nonce + cipher.encrypt(nonce, payload.SerializeToString(), _BOUND_TO)
            encoded.append(Payload(metadata=metadata, data=data))
        return encoded

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt payloads. Raises Unavailable for a key that is missing, with which the call is repeated later."""
        return [
            self._decrypt(payload) if payload.metadata.get("encoding") == ENCODING else payload for payload in payloads
        ]

    def _decrypt(self, payload: Payload) -> Payload:
        from cryptography.exceptions import InvalidTag

        key_id, data = payload.metadata[KEY_ID].decode(errors="replace"), payload.data
        keyring = self._keyring.holding(key_id)
        keyring.require(key_id)
        cipher = self._cipher(keyring, key_id, data[:SALT_BYTES])
        nonce, content = data[SALT_BYTES:][:NONCE_BYTES], data[SALT_BYTES + NONCE_BYTES :]
        try:
            return Payload.FromString(cipher.decrypt(nonce, content, _BOUND_TO))
        except (InvalidTag, ValueError):
            raise keyring.mismatch(key_id) from None

    def _cipher(self, keyring: Keyring, key_id: str, salt: bytes) -> AESGCM:
        cipher = self._ciphers.get((key_id, salt))
        if cipher is None:
            cipher = self._ciphers[key_id, salt] = _derive(keyring.keys[key_id], salt)
            if len(self._ciphers) > CIPHERS_MAX:
                self._ciphers.popitem(last=False)
        return cipher


def _derive(key: bytes, salt: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return AESGCM(HKDF(algorithm=SHA256(), length=len(key), salt=salt, info=_BOUND_TO).derive(key))


def make_codec_converter(keyring: KeyringFile, encrypts: bool) -> DataConverter:
    """Return the converter of payloads that decrypts them. If it ``encrypts``, then also the messages and stacks of
    failures."""
    converter = dataclasses.replace(CONVERTER, payload_codec=EncryptingCodec(keyring, encrypts))
    if not encrypts:
        return converter
    return dataclasses.replace(converter, failure_converter_class=DefaultFailureConverterWithEncodedAttributes)
