"""`image.thumbnail`: a small picture of a large one.

It computes, and it reads what customers sent: so it runs in a process of its own, which may use a whole core, is
stopped when it takes too long, and takes nothing with it should a picture crash the decoder.
"""

from typing import Annotated

from msgspec import Meta, Struct
from PIL import Image, UnidentifiedImageError

from dispatcher import Failed, task


class Thumbnail(Struct):
    """What `image.thumbnail` takes: two paths, the longer side in pixels."""

    source: str
    target: str
    side: Annotated[int, Meta(ge=16, le=1024)] = 256


@task("image.thumbnail", slot="process", time_limit=30)
def make_thumbnail(thumbnail: Thumbnail) -> object:
    """Write the thumbnail, in the format that the target's name ends with."""
    try:
        with Image.open(thumbnail.source) as image:
            image.thumbnail((thumbnail.side, thumbnail.side))
            image.save(thumbnail.target)
            return {"width": image.width, "height": image.height}
    except UnidentifiedImageError:
        raise Failed(f"not a picture: {thumbnail.source}") from None
