"""Thumbnails. Here the body runs in the test's own process; in test_dispatcher.py it has one to itself."""

from pathlib import Path

from PIL import Image

from dispatcher.testing.tally import Tally
from shop.images import Thumbnail, make_thumbnail


def picture(folder: Path) -> Path:
    file = folder / "large.png"
    Image.new("RGB", (1200, 800), "teal").save(file)
    return file


def test_a_thumbnail_keeps_the_proportions(tally: Tally, tmp_path: Path) -> None:
    small = tmp_path / "small.jpg"
    task_id = make_thumbnail.submit(Thumbnail(str(picture(tmp_path)), str(small), side=300))

    tally.run_pending()

    tally.assert_succeeded(task_id, result={"width": 300, "height": 200})
    with Image.open(small) as image:
        assert (image.format, image.size) == ("JPEG", (300, 200))


def test_what_is_no_picture_is_said_to_be_none(tally: Tally, tmp_path: Path) -> None:
    text = tmp_path / "large.png"
    text.write_text("not a picture")
    task_id = make_thumbnail.submit(Thumbnail(str(text), str(tmp_path / "small.png")))

    tally.run_pending()

    tally.assert_failed(task_id, f"not a picture: {text}")
