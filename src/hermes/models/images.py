"""Convert images for all wire formats, and cache them: each step sends the same ones."""

from base64 import b64encode
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from hermes.ports.store import Blobs
from hermes.schema.errors import StoreError
from hermes.schema.messages import Media, Text

MAX_CACHED = 64 * 1024 * 1024
"""Characters of URLs to cache."""
MAX_PER_REQUEST = 24 * 1024 * 1024
"""Characters of URLs per request; providers accept at most 32 to 50 million."""
LINK_TYPE = "image/x-url"
"""Media type of an image with only a URL."""
OMITTED = ""
"""Replaces the URL of an image that does not fit into a request."""

ImageUrlMap: TypeAlias = Mapping[str, str]
"""Data URLs by image digest; `OMITTED` for those that did not fit."""


class ImageUrls(Struct):
    """Caches the most recently used URLs."""

    _blobs: Blobs
    limit: int = MAX_CACHED
    per_request: int = MAX_PER_REQUEST
    _cached: OrderedDict[str, str] = field(default_factory=OrderedDict)
    _size: int = 0

    async def urls(self, images: Sequence[Media]) -> dict[str, str]:
        """Return URLs by digest, newest first until the limit; the others are `OMITTED`.

        An image counts once for each time it appears. Unreadable images are left out.
        """
        shown = Counter(media.digest for media in images)
        newest_first = {media.digest: media for media in reversed(images)}
        found: dict[str, str] = {}
        room = self.per_request
        for digest, media in newest_first.items():
            url = await self._url(media) if room > 0 else OMITTED
            if url is None:
                continue
            room -= len(url) * shown[digest]
            found[digest] = url if room >= 0 else OMITTED
        while self._size > self.limit and self._cached:
            self._size -= len(self._cached.popitem(last=False)[1])
        return found

    async def _url(self, media: Media) -> str | None:
        url = self._cached.get(media.digest)
        if url is None:
            try:
                data = await self._blobs.read(media.digest)
            except StoreError:
                return None
            url = data_url(media, data)
            self._size += len(url)
            self._cached[media.digest] = url
        self._cached.move_to_end(media.digest)
        return url


def data_url(media: Media, data: bytes) -> str:
    """Return the URL itself for a linked image, which the provider then fetches."""
    if media.media_type == LINK_TYPE:
        return data.decode()
    return f"data:{media.media_type};base64,{b64encode(data).decode()}"


class InlineImage(Struct, frozen=True):
    media_type: str
    data: str


class LinkedImage(Struct, frozen=True):
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
        return f"[the image {name} is left out here: newer images take up the available space]"
    return f"[the image {name} is no longer stored]"


def part_text(part: Text | Media) -> str:
    if isinstance(part, Text):
        return part.text
    return f"[attached: {part.name or 'a file'} ({part.media_type}), not readable by this model]"
