# SPDX-License-Identifier: MIT
"""A parser of one HTTP response that arrives in pieces of any size."""

from __future__ import annotations

from typing import Final

import httptools

OK: Final = 0
# llhttp has many errors; callers only distinguish zero from the rest. The text names the error.
FAILED: Final = 1


class HttpParser:
    """Parser of one response. Feed it with ``execute``, and query its progress.

    Bytes behind the end of the response are ignored: the callers open a connection for each response.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._error_text = ""
        self._status_code = 0
        # Values by the lower-case name, and the name as it was first written.
        self._values: dict[str, str] = {}
        self._spelling: dict[str, str] = {}
        self._body: list[bytes] = []
        self._headers_complete = False
        self._message_complete = False

    def execute(self, data: bytes, length: int) -> int:
        """Parse ``data[:length]``; return the number of parsed bytes: all of them, or 0 after an error."""
        if self._error_text:
            return 0
        if self._message_complete:
            return length
        try:
            self._parser.feed_data(data if length == len(data) else data[:length])
        except httptools.HttpParserUpgrade:
            pass  # another protocol follows; the response itself was understood
        except httptools.HttpParserError as error:
            # Bytes behind the end of the response are ignored.
            if not self._message_complete:
                self._error_text = str(error) or type(error).__name__
                return 0
        return length

    def get_errno(self) -> int:
        return FAILED if self._error_text else OK

    def get_errstr(self) -> str:
        return self._error_text

    def is_headers_complete(self) -> bool:
        return self._headers_complete

    def is_message_complete(self) -> bool:
        return self._message_complete

    def is_chunked(self) -> bool:
        codings = self._values.get("transfer-encoding", "").lower().split(",")
        return codings[-1].strip() == "chunked"

    def is_partial_body(self) -> bool:
        """Return whether ``recv_body`` has more data to return."""
        return bool(self._body)

    def get_status_code(self) -> int:
        """Return the status code; 0 until the headers are complete."""
        return self._status_code

    def get_headers(self) -> dict[str, str]:
        """Return the headers with names as first written; values of a repeated header are joined by commas."""
        return {self._spelling[key]: value for key, value in self._values.items()}

    def recv_body(self) -> bytes:
        """Return the body received since the last call, without the framing of chunks."""
        body = b"".join(self._body)
        self._body.clear()
        return body

    # Called by httptools while it is fed.

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._headers_complete:
            return  # a trailer behind the last chunk
        spelling, text = name.decode("latin-1"), value.decode("latin-1")
        key = spelling.lower()
        self._spelling.setdefault(key, spelling)
        self._values[key] = f"{self._values[key]}, {text}" if key in self._values else text

    def on_headers_complete(self) -> None:
        if not self._headers_complete:
            self._headers_complete = True
            self._status_code = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if not self._message_complete:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._message_complete = True
