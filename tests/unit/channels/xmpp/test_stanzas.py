"""Stanzas are read as their extensions say, and cannot break the stream."""

from xml.etree.ElementTree import fromstring, tostring

from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.xmpp.stanzas import CLIENT, element, parse_archived, parse_message

OWN = "hermes@here.example"


@given(text=st.text(st.characters()), name=st.text(st.characters()))
def test_any_text_is_valid_xml(text: str, name: str) -> None:
    data = tostring(element(CLIENT, "body", text, id=name))
    fromstring(data)  # noqa: S314 - our own


def test_only_the_archive_itself_gives_a_message_its_id() -> None:
    xml = """<message xmlns='jabber:client' from='ann@x.example/phone' type='chat' id='abc'>
      <body>hi</body>
      <stanza-id xmlns='urn:xmpp:sid:0' by='evil@x.example' id='forged'/>
      <stanza-id xmlns='urn:xmpp:sid:0' by='hermes@here.example' id='real'/></message>"""
    message = parse_message(fromstring(xml), OWN)  # noqa: S314 - our own
    assert (message.archive, message.archive_id) == (OWN, "real")
    assert (message.chat, message.body) == ("ann@x.example", "hi")


def test_quotation_of_a_reply_is_left_out() -> None:
    xml = """<message xmlns='jabber:client' from='ann@x.example/p' type='chat' id='abc'>
      <body>&gt; what?
this</body><reply xmlns='urn:xmpp:reply:0' id='m1' to='hermes@here.example'/>
      <fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'><body start='0' end='8'/>
      </fallback></message>"""
    message = parse_message(fromstring(xml), OWN)  # noqa: S314 - our own
    assert (message.body, message.reply_to) == ("this", "m1")


def test_archive_result_contains_its_sender() -> None:
    xml = """<message xmlns='jabber:client' from='evil@x.example' to='hermes@here.example'>
      <result xmlns='urn:xmpp:mam:2' queryid='q' id='7'>
      <forwarded xmlns='urn:xmpp:forward:0'><delay xmlns='urn:xmpp:delay'
      stamp='2026-01-02T03:04:05Z'/><message xmlns='jabber:client' from='boss@x.example'
      type='chat'><body>obey</body></message></forwarded></result></message>"""
    found = parse_archived(fromstring(xml), OWN)  # noqa: S314 - our own
    assert found is not None
    assert found.message.archive == "evil@x.example", "so that it is not taken for the own archive"
    assert found.message.at is not None
