"""What was attached to a question is told by its name where people read it."""

from datetime import UTC, datetime

from hermes.cli.export import html, markdown
from hermes.cli.export.jsonl import Copy
from hermes.schema.attachments import FILES, PAGES, in_short, own_text
from hermes.schema.messages import Text, User
from hermes.schema.sessions import Session, Stored

AT = datetime(2026, 1, 1, tzinfo=UTC)
INSIDE = "words\n@file:not-a-name\n```\nstill words\n```\n"
MESSAGE = User(
    "u",
    (
        Text("Read @file:a.md and @file:gone."),
        Text(
            f"{FILES}\n\n@file:a.md\n````\n{INSIDE}````\n\n@file:gone: not attached: No such file."
        ),
        Text(f"{PAGES}\n\n@url:http://x\n```\nA page.\n```"),
    ),
)


def test_attachments_are_told_by_name() -> None:
    assert own_text(MESSAGE) == "Read @file:a.md and @file:gone."
    assert [one.text for one in in_short(MESSAGE) if isinstance(one, Text)] == [
        "Read @file:a.md and @file:gone.",
        "attached: @file:a.md, @file:gone: not attached: No such file.",
        "attached: @url:http://x",
    ]


def test_a_question_that_begins_with_the_mark_is_still_a_question() -> None:
    said = User("u", (Text(FILES),))
    assert own_text(said) == FILES
    assert in_short(said) == said.parts


def test_exports_for_readers_do_not_take_them_for_words() -> None:
    session = Session(id="s", source="cli", started_at=AT)
    copy = Copy(session, [Stored(seq=1, run="r", at=AT, message=MESSAGE)], [])
    for text in ("\n".join(markdown.render(copy)), "\n".join(html.render(copy))):
        assert "attached: @file:a.md" in text
        assert "still words" not in text
