"""What servers write to stderr: nothing of it is lost, and no secret gets out with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.kit.redact import Redactor
from hermes.mcp.stderr import MAX_LINE, SECRET_OVERLAP, StderrLog

pytestmark = pytest.mark.anyio
CANARY = "canary-4711-0815-secret"


class Paper:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.ear = StderrLog(Redactor([CANARY]).redact, self.keep)

    async def keep(self, text: str) -> None:
        self.lines += text.splitlines()


async def test_a_last_line_without_an_end_is_heard() -> None:
    printer = Paper()
    await printer.ear.feed(b"first\nno lu")
    assert printer.lines == ["first"]
    await printer.ear.feed("ck, ä".encode()[:-1])
    await printer.ear.feed("ä".encode()[-1:])
    await printer.ear.end()
    assert printer.lines == ["first", "no luck, ä"]
    assert printer.ear.last_line == "no luck, ä"


async def test_all_of_much_is_kept() -> None:
    printer = Paper()
    said = [f"line {number}" for number in range(3_000)]
    await printer.ear.feed("\n".join(said).encode())
    await printer.ear.end()
    assert printer.lines == said


@given(
    before=st.integers(0, 3 * (MAX_LINE + SECRET_OVERLAP)),
    cut=st.integers(1, len(CANARY) - 1),
    chunk=st.sampled_from([1_000, 4_096, 65_536]),
)
async def test_no_secret_is_cut_in_two(before: int, cut: int, chunk: int) -> None:
    printer = Paper()
    text = ("x" * before + CANARY + "y" * 100).encode()
    for part in (text[: before + cut], text[before + cut :]):
        for start in range(0, len(part), chunk):
            await printer.ear.feed(part[start : start + chunk])
    await printer.ear.end()
    told = "".join(printer.lines)
    assert told == "x" * before + "[redacted]" + "y" * 100
    assert max(map(len, printer.lines)) <= MAX_LINE


async def test_what_people_are_shown_moves_no_cursor() -> None:
    printer = Paper()
    await printer.ear.feed(b"\x1b[2Jgone\n")
    assert printer.ear.last_line == "\u241b[2Jgone"
