"""Screenshots of pages in docs/screenshots, and how far a page is from its own.

What differs from run to run (times, figures of the machine, what the app marks with ``data-varies``) is painted over in
both pictures before they are compared; the checked-in ones show the page as it is.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image, ImageChops, ImageDraw, ImageFilter
from playwright.sync_api import Page as View

Theme = Literal["light", "dark"]
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "screenshots"
VARIES = "time, [data-varies]"
SAME_TIME = f"""() => {{
  for (const one of document.querySelectorAll("time")) one.textContent = "1 min ago";
  return [...document.querySelectorAll("{VARIES}")].map((one) => one.getBoundingClientRect())
    .map(({{ left, top, right, bottom }}) => [left, top, right, bottom]);
}}"""
"""Script that sets times to one width, or columns would move; returns where variable texts are."""
BLUR_PX = 1
SHADE_MIN = 48
"""Difference of a pixel, of 255, that counts: less is the rendering of letters by another version of the browser."""
SHARE_MAX = 0.01
"""Share of the pixels that may differ by more."""


@dataclass(frozen=True)
class Picture:
    image: Image.Image
    varies: list[tuple[float, float, float, float]]

    def painted(self, image: Image.Image) -> Image.Image:
        found = image.convert("RGB")
        draw = ImageDraw.Draw(found)
        for left, top, right, bottom in self.varies:
            draw.rectangle((left - 1, top - 1, right + 1, bottom + 1), fill="grey")
        return found.filter(ImageFilter.BoxBlur(BLUR_PX))


def take(view: View) -> Picture:
    boxes = [tuple(box) for box in view.evaluate(SAME_TIME)]
    taken = view.screenshot(animations="disabled", caret="hide", scale="css")
    return Picture(Image.open(io.BytesIO(taken)).convert("RGB"), boxes)


def file_of(page: str, theme: Theme) -> Path:
    return FOLDER / f"{page}-{theme}.png"


def save(picture: Picture, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    # A palette of 256 colours is a third of the bytes, and what is lost is far below SHADE_MIN.
    picture.image.quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)


def difference(picture: Picture, file: Path) -> tuple[float, Image.Image]:
    """Return the share of pixels that differ, 1 for another size, and a picture of them."""
    with Image.open(file) as kept:
        before = kept.convert("RGB")
    if before.size != picture.image.size:
        return 1.0, picture.image
    apart = ImageChops.difference(picture.painted(picture.image), picture.painted(before))
    red, green, blue = apart.split()
    differs = ImageChops.lighter(ImageChops.lighter(red, green), blue).point(lambda shade: 255 * (shade >= SHADE_MIN))
    return differs.histogram()[255] / (differs.width * differs.height), differs
