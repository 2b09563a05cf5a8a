"""Attachments are shown by name."""

from datetime import UTC, datetime

from hermes.app import session_documents as documents
from hermes.app.session_export import SessionExport
from hermes.schema.messages import FILES_HEADER, PAGES_HEADER, Text, User, display_parts, typed_text
from hermes.schema.sessions import Session, StoredMessage

AT = datetime(2026, 1, 1, tzinfo=UTC)
INSIDE = "words\n@file:not-a-name\n```\nstill words\n```\n"
MESSAGE = User(
    "u",
    (
        Text("Read @file:a.md and @file:gone."),
        Text(
            f"{FILES_HEADER}\n\n@file:a.md\n````\n{INSIDE}````\n\n"
            "@file:gone: not attached: No such file."
        ),
        Text(f"{PAGES_HEADER}\n\n@url:http://x\n```\nA page.\n```"),
    ),
)


def test_attachments_are_shown_by_name() -> None:
    assert typed_text(MESSAGE) == "Read @file:a.md and @file:gone."
    assert [one.text for one in display_parts(MESSAGE) if isinstance(one, Text)] == [
        "Read @file:a.md and @file:gone.",
        "attached: @file:a.md, @file:gone: not attached: No such file.",
        "attached: @url:http://x",
    ]


def test_text_that_looks_like_an_attachment_is_kept() -> None:
    message = User("u", (Text(FILES_HEADER),))
    assert typed_text(message) == FILES_HEADER
    assert display_parts(message) == message.parts


def test_exports_show_attachments_by_name() -> None:
    session = Session(id="s", source="cli", started_at=AT)
    copy = SessionExport(session, [StoredMessage(seq=1, run="r", at=AT, message=MESSAGE)], [])
    for text in (
        "\n".join(documents.render_markdown(copy)),
        "\n".join(documents.render_html(copy)),
    ):
        assert "attached: @file:a.md" in text
        assert "still words" not in text
