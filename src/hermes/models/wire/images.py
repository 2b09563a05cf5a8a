"""Images and other files of a conversation, as every wire needs them."""

from msgspec import Struct

from hermes.models.images import OMITTED
from hermes.models.wire.stream import ImageUrlMap
from hermes.schema.messages import Media, Text


class InlineImage(Struct, frozen=True):
    """An image with its bytes, in base64."""

    media_type: str
    data: str


class LinkedImage(Struct, frozen=True):
    """An image of which only the address is known."""

    url: str


def is_image(media: Media) -> bool:
    return media.media_type.startswith("image/")


def image_content(media: Media, urls: ImageUrlMap) -> InlineImage | LinkedImage | str:
    """The image, or words in its place."""
    url = urls.get(media.digest)
    if not url:
        return missing_image_text(media, url)
    head, _, data = url.partition(";base64,")
    return InlineImage(head.removeprefix("data:"), data) if data else LinkedImage(url)


def missing_image_text(media: Media, url: str | None) -> str:
    """Why an image is not shown: nobody has it any more, or there is no room for it."""
    name = media.name or media.digest[:12]
    if url == OMITTED:
        return f"[the image {name} is left out here: later ones take all the room]"
    return f"[the image {name} is no longer there]"


def part_text(part: Text | Media) -> str:
    if isinstance(part, Text):
        return part.text
    return f"[attached: {part.name or 'a file'} ({part.media_type}), not readable by this model]"
