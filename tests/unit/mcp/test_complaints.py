"""What servers write to stderr: nothing of it is lost, and no secret gets out with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.kit.redact import Redactor
from hermes.mcp.complaints import LONGEST_LINE, SECRET, Complaints

pytestmark = pytest.mark.anyio
CANARY = "canary-4711-0815-secret"


class Paper:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.ear = Complaints(Redactor([CANARY]).redact, self.keep)

    async def keep(self, text: str) -> None:
        self.lines += text.splitlines()


async def test_a_last_line_without_an_end_is_heard() -> None:
    paper = Paper()
    await paper.ear.hear(b"first\nno lu")
    assert paper.lines == ["first"]
    await paper.ear.hear("ck, ä".encode()[:-1])
    await paper.ear.hear("ä".encode()[-1:])
    await paper.ear.end()
    assert paper.lines == ["first", "no luck, ä"]
    assert paper.ear.last == "no luck, ä"


async def test_all_of_much_is_kept() -> None:
    paper = Paper()
    said = [f"line {number}" for number in range(3_000)]
    await paper.ear.hear("\n".join(said).encode())
    await paper.ear.end()
    assert paper.lines == said


@given(
    before=st.integers(0, 3 * (LONGEST_LINE + SECRET)),
    cut=st.integers(1, len(CANARY) - 1),
    chunk=st.sampled_from([1_000, 4_096, 65_536]),
)
async def test_no_secret_is_cut_in_two(before: int, cut: int, chunk: int) -> None:
    paper = Paper()
    text = ("x" * before + CANARY + "y" * 100).encode()
    for part in (text[: before + cut], text[before + cut :]):
        for start in range(0, len(part), chunk):
            await paper.ear.hear(part[start : start + chunk])
    await paper.ear.end()
    told = "".join(paper.lines)
    assert told == "x" * before + "[redacted]" + "y" * 100
    assert max(map(len, paper.lines)) <= LONGEST_LINE


async def test_what_people_are_shown_moves_no_cursor() -> None:
    paper = Paper()
    await paper.ear.hear(b"\x1b[2Jgone\n")
    assert paper.ear.last == "\u241b[2Jgone"
