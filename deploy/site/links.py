"""Hook of mkdocs: links that lead out of docs/ become text, as the site has no sources and examples."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    return unlink_sources(markdown, page.file.src_uri)


def unlink_sources(markdown: str, page: str) -> str:
    """Return the text of a page, whose path is relative to docs/, without links to files outside docs/."""

    def keep_or_unlink(match: re.Match[str]) -> str:
        text, target, _ = match.groups()
        is_outside = "://" not in target and posixpath.normpath(
            posixpath.join(posixpath.dirname(page), target)
        ).startswith("..")
        return text if is_outside else match[0]

    return LINK.sub(keep_or_unlink, markdown)
