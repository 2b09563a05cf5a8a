"""Who is mentioned, what was written, and what is sent."""

import msgspec
import pytest

from hermes.channels.matrix.message_text import is_mentioned, without_fallback, written_text
from hermes.channels.matrix.objects import InReplyTo, Mentions, MessageContent, Relation
from hermes.channels.matrix.outbound import text_content, transaction, with_relation
from hermes.channels.matrix.room_sender import MAX_ENCRYPTED, fitting
from hermes.ports.channel import Markup, Outbound
from hermes.schema.messages import Text

AGENT = "@agent:example.org"
PILL = '<a href="https://matrix.to/#/@agent:example.org">Robo</a> hi'


@pytest.mark.parametrize(
    ("content", "mentioned"),
    [
        (MessageContent(body="hi", mentions=Mentions(user_ids=(AGENT,))), True),
        (MessageContent(body="agent hi", mentions=Mentions()), False),
        (MessageContent(body="@room", mentions=Mentions(room=True)), False),
        (MessageContent(body="Robo hi", formatted_body=PILL), True),
        (MessageContent(body="Robo: hi"), True),
        (MessageContent(body="the agent's name"), True),
        (MessageContent(body="agents are many"), False),
    ],
)
def test_mentions(content: MessageContent, mentioned: bool) -> None:
    assert is_mentioned(content, AGENT, "Robo", room_mentions=False) is mentioned


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("Robo: hi", "hi"),
        ("@agent:example.org, hi", "hi"),
        ("Robot hi", "Robot hi"),
        ("!help me", "/help me"),
        ("!important", "!important"),
        ("Robo !help", "/help"),
    ],
)
def test_prefixes_are_removed_and_commands_found(body: str, text: str) -> None:
    assert written_text(MessageContent(body=body), AGENT, "Robo", {"help"}) == text


def test_quotation_before_a_reply_is_removed_only_from_replies() -> None:
    body = "> <@ann:example.org> first\n> second\n\nanswer"
    assert without_fallback(body) == "answer"
    reply = Relation(in_reply_to=InReplyTo(event_id="$1"))
    assert written_text(MessageContent(body=body, relates_to=reply), AGENT, "", ()) == "answer"
    assert written_text(MessageContent(body=body), AGENT, "", ()) == body


def test_reply_that_a_thread_needs_for_old_clients_is_none() -> None:
    content = {
        "rel_type": "m.thread",
        "event_id": "$1",
        "is_falling_back": True,
        "m.in_reply_to": {"event_id": "$2"},
    }
    relation = msgspec.convert(content, Relation)
    assert (relation.thread, relation.replied) == ("$1", "")


def test_attempts_at_a_post_have_the_same_transaction() -> None:
    assert transaction("a:0") == transaction("a:0") != transaction("a:1")
    assert transaction("") != transaction("")


def test_post_in_a_thread_replies_to_its_first_event_for_old_clients() -> None:
    relation = with_relation({"body": "x"}, "$1", "$1")["m.relates_to"]
    assert relation == {
        "rel_type": "m.thread",
        "event_id": "$1",
        "is_falling_back": True,
        "m.in_reply_to": {"event_id": "$1"},
    }


def test_html_that_does_not_fit_is_left_out() -> None:
    text = "x" * 30_000
    post = Outbound((Text(f"<p>{text}</p>"),), markup=Markup.HTML, plain=text)
    content = text_content(post, ())
    assert "formatted_body" in content
    assert fitting(content, MAX_ENCRYPTED) == {
        "msgtype": "m.text", "body": text, "m.mentions": {},
    }  # fmt: skip
