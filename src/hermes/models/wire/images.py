"""Convert images and other attachments for all wire formats."""

from msgspec import Struct

from hermes.models.images import OMITTED
from hermes.models.wire.stream import ImageUrlMap
from hermes.schema.messages import Media, Text


class InlineImage(Struct, frozen=True):
    """An image with its data, in base64."""

    media_type: str
    data: str


class LinkedImage(Struct, frozen=True):
    """An image of which only the URL is known."""

    url: str


def is_image(media: Media) -> bool:
    return media.media_type.startswith("image/")


def image_content(media: Media, urls: ImageUrlMap) -> InlineImage | LinkedImage | str:
    """Return the image, or a placeholder text."""
    url = urls.get(media.digest)
    if not url:
        return missing_image_text(media, url)
    head, _, data = url.partition(";base64,")
    return InlineImage(head.removeprefix("data:"), data) if data else LinkedImage(url)


def missing_image_text(media: Media, url: str | None) -> str:
    """Say why an image is missing: it is no longer stored, or did not fit into the request."""
    name = media.name or media.digest[:12]
    if url == OMITTED:
        return f"[the image {name} is left out here: later ones take all the room]"
    return f"[the image {name} is no longer there]"


def part_text(part: Text | Media) -> str:
    if isinstance(part, Text):
        return part.text
    return f"[attached: {part.name or 'a file'} ({part.media_type}), not readable by this model]"
