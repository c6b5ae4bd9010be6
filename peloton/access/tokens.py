"""Bearer tokens, whose hashes are in a file.

A token is ``ptk_ID_SECRET``. The id is public and finds the row; the secret has 256 random bits, so that one keyed hash
with a salt of its own protects it as well as a slow one would. The file has one JSON object per line.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b

from peloton.access.caller import CallerKind
from peloton.access.rows import check_keys, text_of, texts_of

PREFIX = "ptk_"
TOKENS_MAX = 10_000
ID_BYTES = 8
SECRET_BYTES = 32
SALT_BYTES = 16
RANDOM_BYTES = ID_BYTES + SECRET_BYTES + SALT_BYTES
KINDS = (CallerKind.USER, CallerKind.SERVICE, CallerKind.ROLE)
_KEYS = frozenset({"id", "name", "kind", "groups", "created", "expires", "salt", "hash"})


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token as the file has it. ``expires_s`` is Unix time; 0: never."""

    id: str
    name: str
    kind: CallerKind
    groups: tuple[str, ...]
    created: str
    expires_s: float
    salt: bytes
    hash: bytes

    @property
    def expires(self) -> str:
        return datetime.fromtimestamp(self.expires_s, UTC).isoformat(timespec="seconds") if self.expires_s else ""

    def to_line(self) -> str:
        row = {
            "id": self.id,
            "name": self.name,
            "kind": str(self.kind),
            "groups": list(self.groups),
            "created": self.created,
            "expires": self.expires,
            "salt": self.salt.hex(),
            "hash": self.hash.hex(),
        }
        return json.dumps(row, ensure_ascii=False)


def make_token(
    name: str, kind: CallerKind, groups: tuple[str, ...], lifetime_s: float, now_s: float, random_bytes: bytes
) -> tuple[str, TokenRow]:
    """Return a new token, which is shown once, and its row. ``random_bytes``: RANDOM_BYTES of them."""
    assert len(random_bytes) == RANDOM_BYTES
    token_id, salt = random_bytes[:ID_BYTES].hex(), random_bytes[ID_BYTES + SECRET_BYTES :]
    secret = urlsafe_b64encode(random_bytes[ID_BYTES : ID_BYTES + SECRET_BYTES]).decode().rstrip("=")
    created = datetime.fromtimestamp(now_s, UTC).isoformat(timespec="seconds")
    expires_s = now_s + lifetime_s if lifetime_s else 0.0
    row = TokenRow(token_id, name, kind, groups, created, expires_s, salt=salt, hash=hash_secret(secret, salt))
    return f"{PREFIX}{token_id}_{secret}", row


def hash_secret(secret: str, salt: bytes) -> bytes:
    return blake2b(secret.encode(errors="surrogatepass"), key=salt, digest_size=32).digest()


def parse_rows(text: str) -> dict[str, TokenRow]:
    """Return the rows of a file by id. Raises ValueError."""
    rows: dict[str, TokenRow] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        row = _parse_row(line, f"line {number}")
        if row.id in rows:
            raise ValueError(f"line {number}: token {row.id} is there twice")
        rows[row.id] = row
        if len(rows) > TOKENS_MAX:
            raise ValueError(f"more than {TOKENS_MAX:,} tokens")
    return rows


def _parse_row(line: str, where: str) -> TokenRow:
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(f"{where} is not JSON") from None
    row = check_keys(parsed, _KEYS, where)
    kind = text_of(row, "kind", where, "user")
    if kind not in KINDS:
        raise ValueError(f"{where}: want user, service or role for kind")
    expires = text_of(row, "expires", where, "")
    try:
        expires_s = datetime.fromisoformat(expires).astimezone(UTC).timestamp() if expires else 0.0
        salt, hash = (bytes.fromhex(text_of(row, key, where)) for key in ("salt", "hash"))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where}: {error}") from None
    if not 0 < len(salt) <= blake2b.MAX_KEY_SIZE:
        raise ValueError(f"{where}: want a salt of 1 to {blake2b.MAX_KEY_SIZE} bytes")
    return TokenRow(
        text_of(row, "id", where),
        text_of(row, "name", where),
        CallerKind(kind),
        texts_of(row, "groups", where),
        created=text_of(row, "created", where, ""),
        expires_s=expires_s,
        salt=salt,
        hash=hash,
    )
