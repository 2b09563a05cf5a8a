"""Images as data URLs; a conversation sends the same ones again with every step."""

from base64 import b64encode
from collections import OrderedDict
from collections.abc import Sequence

from hermes.ports.blobs import Blobs
from hermes.schema.errors import NotFound
from hermes.schema.messages import Media

LIMIT = 64 * 1024 * 1024
"""How many characters of URLs are kept."""


class Images:
    """Keeps the URLs used last."""

    def __init__(self, blobs: Blobs, limit: int = LIMIT) -> None:
        self._blobs = blobs
        self._limit = limit
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._size = 0

    async def urls(self, images: Sequence[Media]) -> dict[str, str]:
        """URLs by digest; an image whose bytes are gone is left out."""
        found: dict[str, str] = {}
        for media in images:
            url = self._kept.get(media.digest)
            if url is None:
                try:
                    data = await self._blobs.read(media.digest)
                except NotFound:
                    continue
                url = data_url(media, data)
                self._size += len(url)
            found[media.digest] = self._kept[media.digest] = url
            self._kept.move_to_end(media.digest)
        while self._size > self._limit and self._kept:
            _, gone = self._kept.popitem(last=False)
            self._size -= len(gone)
        return found


def data_url(media: Media, data: bytes) -> str:
    return f"data:{media.media_type};base64,{b64encode(data).decode()}"
