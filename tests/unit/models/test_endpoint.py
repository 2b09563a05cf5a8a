import anyio
import pytest

from hermes.models.endpoint import Place, TooLarge, beginning_of, whole_of

pytestmark = pytest.mark.anyio


class Pieces:
    """A body that comes as it was cut, and then ends, breaks or hangs."""

    def __init__(self, *pieces: bytes, end: Exception | None = None, hangs: bool = False) -> None:
        self.left = list(pieces)
        self._end = end
        self._hangs = hangs

    async def readany(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        if self.left:
            return self.left.pop(0)
        if self._hangs:
            await anyio.sleep_forever()
        if self._end:
            raise self._end
        return b""


async def test_a_body_in_many_pieces_is_read_whole():
    pieces = [b'{"error": "', b"x" * 70_000, b'", "code": ', b"1}"]
    assert await whole_of(Pieces(*pieces), 80_000) == b"".join(pieces)
    assert await beginning_of(Pieces(*pieces), 80_000, 60) == b"".join(pieces)


async def test_a_body_may_be_exactly_as_large_as_its_limit():
    assert await whole_of(Pieces(b"ab", b"cd"), 4) == b"abcd"
    with pytest.raises(TooLarge, match="more than 3 bytes"):
        await whole_of(Pieces(b"ab", b"cd"), 3)


async def test_reading_stops_at_the_limit():
    source = Pieces(b"ab", b"cd", b"ef", b"gh")
    assert await beginning_of(source, 3, 60) == b"abc"
    assert source.left == [b"ef", b"gh"]


@pytest.mark.parametrize("end", [TimeoutError(), ConnectionResetError()])
async def test_of_a_body_that_breaks_off_the_beginning_counts(end: Exception):
    assert await beginning_of(Pieces(b"ab", end=end), 100, 60) == b"ab"


async def test_of_a_body_that_hangs_the_beginning_counts():
    assert await beginning_of(Pieces(b"ab", hangs=True), 100, 0.01) == b"ab"


def test_signs_of_life_prolong_the_wait_but_not_for_ever():
    assert Place(base_url="", idle=10.0).longest_pause == 50.0
    assert Place(base_url="", idle=10.0, patience=20.0).longest_pause == 20.0
