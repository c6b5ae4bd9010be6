"""The comparison of screenshots finds visible differences, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from tests.browser.pages import Page
from tests.browser.pictures import SHARE_MAX, Picture, difference, save
from tests.present import require

BOX = (20.0, 20.0, 120.0, 40.0)


def page(text: str = "1 min ago", bar: int = 200, letters: str = "black") -> Picture:
    image = Image.new("RGB", (400, 300), "white")
    draw = ImageDraw.Draw(image)
    draw.text((20, 20), text, fill=letters)
    draw.rectangle((20, 100, bar, 130), fill="#2f6fab")
    return Picture(image, [BOX])


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    save(page(), tmp_path / "kept.png")
    return tmp_path / "kept.png"


def test_the_same_page_does_not_differ(kept: Path) -> None:
    """Fewer colours in the file are no difference."""
    assert 0 == difference(page(), kept)[0]


def test_what_varies_is_no_difference(kept: Path) -> None:
    """Text in places that the page marks as variable is no difference."""
    assert 0 == difference(page("59 min ago", letters="red"), kept)[0]


def test_another_bar_is_a_difference(kept: Path) -> None:
    """A bar that is half as long again is noticed, and the picture of differences shows where."""
    share, differs = difference(page(bar=300), kept)

    assert share > SHARE_MAX
    left, top, right, bottom = require(differs.getbbox())
    assert 195 <= left < right <= 305
    assert 95 <= top < bottom <= 135


def test_another_size_is_a_difference(kept: Path) -> None:
    """A picture of another size differs completely."""
    picture = page()

    assert 1 == difference(Picture(picture.image.crop((0, 0, 400, 299)), []), kept)[0]


def test_an_address_needs_all_that_stands_in_it() -> None:
    """An address needs a value for each place in its path."""
    one = Page("pod", "/jobs/:id/pods/:instance", "Pod")

    assert "/jobs/a/pods/7" == one.address({"jobs/:id": "a", "jobs/:id/pods/:instance": "7"})
    with pytest.raises(LookupError, match=r"page pod: .* nothing for jobs/:id/pods/:instance"):
        one.address({"jobs/:id": "a"})
