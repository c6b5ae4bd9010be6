"""``make screenshots``: takes new screenshots of every page, into docs/screenshots."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.browser import pictures
from tests.browser.chromium import lacking
from tests.browser.pages import pages
from tests.browser.views import THEMES, chromium, open_view
from tests.browser.world import world


def main() -> int:
    if why := lacking():
        print(f"no screenshots: {why}", file=sys.stderr)
        return 1
    taken = set()
    with tempfile.TemporaryDirectory() as folder, world(Path(folder)) as shown, chromium() as browser:
        for page in pages():
            for theme in THEMES:
                file = pictures.file_of(page.name, theme)
                with open_view(browser, shown.url + page.address(shown.given), theme) as open_page:
                    pictures.save(pictures.take(open_page.view), file)
                print(f"{file.name}: {file.stat().st_size // 1024} KiB", flush=True)
                taken.add(file)
    for file in set(pictures.FOLDER.glob("*.png")) - taken:
        file.unlink()  # of a page that is gone
    return 0


if __name__ == "__main__":
    sys.exit(main())
