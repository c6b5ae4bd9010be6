"""The methods of Aurora's API that the bridge serves. It refuses the others of the API as the original does."""

from __future__ import annotations

from services.aurorabridge import reads, writes
from services.aurorabridge.method import Method

METHODS: dict[str, Method] = {**reads.METHODS, **writes.METHODS}
