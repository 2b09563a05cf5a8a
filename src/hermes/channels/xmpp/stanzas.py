"""Read messages and presences of XMPP, and write the elements of the extensions in use."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from xml.etree.ElementTree import Element, SubElement

from msgspec import Struct, structs

CLIENT = "jabber:client"
CHAT_STATES = "http://jabber.org/protocol/chatstates"
CORRECTION = "urn:xmpp:message-correct:0"
DELAY = "urn:xmpp:delay"
FALLBACK = "urn:xmpp:fallback:0"
FORWARD = "urn:xmpp:forward:0"
MAM = "urn:xmpp:mam:2"
MUC = "http://jabber.org/protocol/muc"
MUC_USER = f"{MUC}#user"
OOB = "jabber:x:oob"
ORIGIN_ID = "urn:xmpp:sid:0"
PING = "urn:xmpp:ping"
REACTIONS = "urn:xmpp:reactions:0"
RECEIPTS = "urn:xmpp:receipts"
REPLY = "urn:xmpp:reply:0"
RETRACT = "urn:xmpp:message-retract:1"
RSM = "http://jabber.org/protocol/rsm"
STYLING = "urn:xmpp:styling:0"
UPLOAD = "urn:xmpp:http:upload:0"
_ENCRYPTED = frozenset({
    "{eu.siacs.conversations.axolotl}encrypted", "{urn:xmpp:omemo:2}encrypted",
    "{urn:xmpp:openpgp:0}openpgp", "{jabber:x:encrypted}x",
})  # fmt: skip
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"


class Reactions(Struct, frozen=True):
    """All reactions of a person to a message; they replace earlier ones."""

    message: str
    emojis: tuple[str, ...]


class StanzaProblem(Struct, frozen=True):
    """Why a stanza was refused; `kind` says whether a retry makes sense."""

    condition: str
    kind: str
    text: str


class XmppMessage(Struct, frozen=True, kw_only=True):
    """A message; `archive_id` is its id in the archive of the account or of the room `archive`.

    `at` is set for messages that were written earlier.
    """

    sender: str
    kind: str
    id: str = ""
    body: str = ""
    archive: str = ""
    archive_id: str = ""
    at: datetime | None = None
    replaces: str = ""
    retracts: str = ""
    reply_to: str = ""
    reactions: Reactions | None = None
    files: tuple[str, ...] = ()
    encrypted: bool = False
    wants_receipt: bool = False
    problem: StanzaProblem | None = None

    @property
    def chat(self) -> str:
        return bare(self.sender)

    @property
    def nick(self) -> str:
        """The sender's nickname in a room."""
        return self.sender.partition("/")[2]


def bare(jid: str) -> str:
    return jid.partition("/")[0].lower()


def parse_message(xml: Element, own: str) -> XmppMessage:
    """`own` is the address of the account."""
    kind, sender = xml.get("type", "normal"), xml.get("from", own)
    archive = bare(sender) if kind == "groupchat" else own
    reply = xml.find(f"{{{REPLY}}}reply")
    reactions = xml.find(f"{{{REACTIONS}}}reactions")
    return XmppMessage(
        sender=sender,
        kind=kind,
        id=xml.get("id", ""),
        body=_body(xml, is_reply=reply is not None),
        archive=archive,
        archive_id=_archive_id(xml, archive),
        at=_delay(xml),
        replaces=_attribute(xml, CORRECTION, "replace", "id"),
        retracts=_attribute(xml, RETRACT, "retract", "id"),
        reply_to=reply.get("id", "") if reply is not None else "",
        reactions=_reactions(reactions) if reactions is not None else None,
        files=tuple(_texts(xml, f"{{{OOB}}}x/{{{OOB}}}url")),
        encrypted=any(child.tag in _ENCRYPTED for child in xml),
        wants_receipt=xml.find(f"{{{RECEIPTS}}}request") is not None,
        problem=_problem(xml) if kind == "error" else None,
    )


class ArchivedMessage(Struct, frozen=True):
    """A result of a query; `sender` is the archive that sent it."""

    sender: str
    query: str
    message: XmppMessage


def parse_archived(xml: Element, own: str) -> ArchivedMessage | None:
    """None if the message is not the result of a query."""
    result = xml.find(f"{{{MAM}}}result")
    forwarded = result.find(f"{{{FORWARD}}}forwarded") if result is not None else None
    inner = forwarded.find(f"{{{CLIENT}}}message") if forwarded is not None else None
    if result is None or forwarded is None or inner is None:
        return None
    archive = bare(xml.get("from", own))
    message = parse_message(inner, own)
    full = structs.replace(
        message,
        archive=archive,
        archive_id=result.get("id", ""),
        at=_delay(forwarded) or message.at,
    )
    return ArchivedMessage(archive, result.get("queryid", ""), full)


def _body(xml: Element, *, is_reply: bool) -> str:
    """Return the text without the quotation added for clients that do not support replies."""
    text = next(iter(_texts(xml, f"{{{CLIENT}}}body")), "")
    if not is_reply:
        return text
    for fallback in xml.findall(f"{{{FALLBACK}}}fallback"):
        part = fallback.find(f"{{{FALLBACK}}}body")
        if fallback.get("for") == REPLY and part is not None:
            start, end = part.get("start", "0"), part.get("end", "")
            if start.isdecimal() and end.isdecimal():
                return text[: int(start)] + text[int(end) :]
    return text


def _texts(xml: Element, path: str) -> list[str]:
    return [child.text for child in xml.findall(path) if child.text]


def _attribute(xml: Element, namespace: str, tag: str, name: str) -> str:
    found = xml.find(f"{{{namespace}}}{tag}")
    return found.get(name, "") if found is not None else ""


def _archive_id(xml: Element, archive: str) -> str:
    """Return the id assigned by the archive itself; senders can forge any other."""
    return next(
        (
            child.get("id", "")
            for child in xml.findall(f"{{{ORIGIN_ID}}}stanza-id")
            if bare(child.get("by", "")) == archive
        ),
        "",
    )


def _delay(xml: Element) -> datetime | None:
    try:
        at = datetime.fromisoformat(_attribute(xml, DELAY, "delay", "stamp"))
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _reactions(xml: Element) -> Reactions:
    emojis = _texts(xml, f"{{{REACTIONS}}}reaction")
    return Reactions(xml.get("id", ""), tuple(dict.fromkeys(emojis)))


def _problem(xml: Element) -> StanzaProblem:
    error = xml.find(f"{{{CLIENT}}}error")
    children = list(error) if error is not None else []
    named = [child for child in children if child.tag.startswith(f"{{{_STANZAS}}}")]
    conditions = [child.tag.partition("}")[2] for child in named if not child.tag.endswith("}text")]
    texts = [child.text or "" for child in named if child.tag.endswith("}text")]
    condition = next(iter(conditions), "undefined-condition")
    kind = error.get("type", "cancel") if error is not None else "cancel"
    return StanzaProblem(condition, kind, next(iter(texts), "") or condition)


class RoomPresence(Struct, frozen=True, kw_only=True):
    """A person in a room, with their address if the room shows it; `own` if it is the agent."""

    sender: str
    available: bool
    jid: str = ""
    own: bool = False
    problem: StanzaProblem | None = None


def parse_presence(xml: Element) -> RoomPresence | None:
    """Return None if the presence is not that of a person in a room."""
    details, kind = xml.find(f"{{{MUC_USER}}}x"), xml.get("type", "")
    if details is None and not (kind == "error" and xml.find(f"{{{MUC}}}x") is not None):
        return None
    item = details.find(f"{{{MUC_USER}}}item") if details is not None else None
    statuses = details.findall(f"{{{MUC_USER}}}status") if details is not None else []
    return RoomPresence(
        sender=xml.get("from", ""),
        available=not kind,
        jid=bare(item.get("jid", "")) if item is not None else "",
        own=any(status.get("code") == "110" for status in statuses),
        problem=_problem(xml) if kind == "error" else None,
    )


def element(namespace: str, tag: str, text: str = "", **attributes: str) -> Element:
    """Characters that XML does not allow are removed: the server would end the session."""
    safe = {name: _NOT_XML.sub("", value) for name, value in attributes.items()}
    made = Element(f"{{{namespace}}}{tag}", safe)
    made.text = _NOT_XML.sub("", text) or None
    return made


def text_elements(text: str, *, styled: bool) -> list[Element]:
    """Return the body of a message; plain text is marked so that clients find no styles in it."""
    body = element(CLIENT, "body", text)
    return [body] if styled else [body, element(STYLING, "unstyled")]


def reactions_element(message: str, emojis: Sequence[str]) -> Element:
    made = element(REACTIONS, "reactions", id=message)
    for emoji in emojis:
        SubElement(made, f"{{{REACTIONS}}}reaction").text = emoji
    return made


def join_element(password: str) -> Element:
    made = element(MUC, "x")
    # Earlier messages are fetched from the room's archive.
    SubElement(made, f"{{{MUC}}}history", {"maxstanzas": "0"})
    if password:
        SubElement(made, f"{{{MUC}}}password").text = password
    return made


def archive_query(
    query: str, *, after: str | None, start: datetime | None, max_results: int
) -> Element:
    """Messages after this id or time; without both, only the last ones."""
    made = element(MAM, "query", queryid=query)
    form = SubElement(made, "{jabber:x:data}x", {"type": "submit"})
    _field(form, "FORM_TYPE", MAM)
    if start is not None:
        _field(form, "start", start.astimezone(UTC).isoformat().replace("+00:00", "Z"))
    page = SubElement(made, f"{{{RSM}}}set")
    SubElement(page, f"{{{RSM}}}max").text = str(max_results)
    if after:
        SubElement(page, f"{{{RSM}}}after").text = after
    elif after is None and start is None:
        SubElement(page, f"{{{RSM}}}before")
    return made


def _field(form: Element, name: str, value: str) -> None:
    field = SubElement(form, "{jabber:x:data}field", {"var": name})
    SubElement(field, "{jabber:x:data}value").text = value
