"""Server stderr is logged completely and redacted."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.kit.redact import Redactor
from hermes.mcp.transports import MAX_LINE, SECRET_OVERLAP, StderrLog

CANARY = "canary-4711-0815-secret"


class StderrRecorder:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.log = StderrLog(Redactor([CANARY]).redact, self.keep)

    async def keep(self, text: str) -> None:
        self.lines += text.splitlines()


async def test_last_line_without_newline_is_logged() -> None:
    printer = StderrRecorder()
    await printer.log.feed(b"first\nno lu")
    assert printer.lines == ["first"]
    await printer.log.feed("ck, ä".encode()[:-1])
    await printer.log.feed("ä".encode()[-1:])
    await printer.log.end()
    assert printer.lines == ["first", "no luck, ä"]
    assert printer.log.last_line == "no luck, ä"


async def test_long_output_is_logged_completely() -> None:
    printer = StderrRecorder()
    expected = [f"line {number}" for number in range(3_000)]
    await printer.log.feed("\n".join(expected).encode())
    await printer.log.end()
    assert printer.lines == expected


@given(
    before=st.integers(0, 3 * (MAX_LINE + SECRET_OVERLAP)),
    cut=st.integers(1, len(CANARY) - 1),
    chunk=st.sampled_from([1_000, 4_096, 65_536]),
)
async def test_secret_is_never_split(before: int, cut: int, chunk: int) -> None:
    printer = StderrRecorder()
    text = ("x" * before + CANARY + "y" * 100).encode()
    for part in (text[: before + cut], text[before + cut :]):
        for start in range(0, len(part), chunk):
            await printer.log.feed(part[start : start + chunk])
    await printer.log.end()
    text = "".join(printer.lines)
    assert text == "x" * before + "[redacted]" + "y" * 100
    assert max(map(len, printer.lines)) <= MAX_LINE


async def test_last_line_is_escaped() -> None:
    printer = StderrRecorder()
    await printer.log.feed(b"\x1b[2Jgone\n")
    assert printer.log.last_line == "\u241b[2Jgone"
