"""Turn posts into calls of Slack's API: text, or Block Kit where text is not enough."""

import re
from collections.abc import Iterator, Sequence

from hermes.channels.slack import SlackOptions
from hermes.ports.channel import Choice, Markup, NotSent, Outbound

MAX_UPDATE = 4_000
"""The longest text of an edited message; longer ones are sent as blocks."""
MAX_TEXT = 40_000
MAX_SECTION = 3_000
MAX_BLOCKS = 50
MAX_DIVIDED = 20
"""Maximum number of blocks separated by rules; each rule takes up space."""
MAX_BUTTONS_IN_ROW = 5
MAX_VALUE = 2_000
MAX_LABEL = 75
_FENCE = "```"
_RULE = "———"
_TS = re.compile(r"\d+\.\d+")
_DENIALS = ("deny", "no", "stop", "cancel", "reject")
_CONSENTS = ("allow", "yes", "approve")

Fields = dict[str, object]


def message_fields(post: Outbound, options: SlackOptions) -> Fields:
    """The text and blocks of a post; the same for new and edited messages.

    Beside blocks, the text is only what notifications show.
    """
    text, plain = post.text, post.markup is Markup.PLAIN
    if plain:
        blocks = [_plain_section(piece) for piece in _cut(text, MAX_SECTION)]
        shown = escape(text)
    else:
        blocks = _all_sections(text)
        shown = text
    blocks += _action_rows(post.choices)
    needs_blocks = bool(post.choices) or plain or options.rich_blocks or len(text) > MAX_UPDATE
    if not needs_blocks or len(blocks) > MAX_BLOCKS:
        return {"text": shown[:MAX_TEXT], "blocks": [], "mrkdwn": not plain}
    return {"text": _cut_short(shown), "blocks": blocks}


def new_message_fields(
    chat: str, thread: str | None, post: Outbound, options: SlackOptions
) -> Fields:
    fields = message_fields(post, options)
    plain = post.markup is Markup.PLAIN
    short = MAX_SECTION if plain else MAX_UPDATE
    if not post.choices and not options.rich_blocks and len(post.text) > short:
        # It fits in a new message unchanged.
        text = escape(post.text) if plain else post.text
        fields = {"text": text[:MAX_TEXT], "mrkdwn": not plain}
    elif not fields["blocks"]:
        del fields["blocks"]
    fields |= {"channel": chat, "thread_ts": thread}
    if thread and options.reply_broadcast and post.key:
        fields["reply_broadcast"] = True
    return fields


def edited_message_fields(chat: str, ts: str, post: Outbound, options: SlackOptions) -> Fields:
    """Return the fields of an edit, always with blocks: otherwise the old ones would remain."""
    fields = message_fields(post, options)
    fields.pop("mrkdwn", None)
    return {**fields, "channel": chat, "ts": message_ts(ts)}


def message_ts(message: str) -> str:
    if not _TS.fullmatch(message):
        raise NotSent(f"{message!r} is not the id of a message.")
    return message


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut_short(text: str) -> str:
    if len(text) <= MAX_UPDATE:
        return text
    # Do not cut inside an entity or a link.
    return re.sub(r"[&<][^;>]*$", "", text[: MAX_UPDATE - 1]) + "…"


def comment(post: Outbound) -> str:
    """Return the text that accompanies files; captions have no markup."""
    if post.text and post.markup is not Markup.PLAIN:
        return post.text
    return escape(
        post.text or " ".join(attachment.caption for attachment in post.attachments).strip()
    )


def _all_sections(text: str) -> list[Fields]:
    """Divide sections by rules, unless that would make too many blocks."""
    sections = [*_sections(text, _RULE)]
    return sections if len(sections) <= MAX_DIVIDED else [*_sections(text, "")]


def _sections(text: str, rule: str) -> Iterator[Fields]:
    """Split text into sections; a code block that is cut continues in the next one."""
    piece: list[str] = []
    size, open_fence = 0, False
    for line in _lines(text):
        toggles = line.count(_FENCE) % 2 == 1
        closes = open_fence and toggles
        # Room for the fence that ends the piece.
        if size + len(line) + 1 + len(_FENCE) > MAX_SECTION and piece and not closes:
            yield from _section(piece, fenced=open_fence)
            piece, size = ([_FENCE], len(_FENCE) + 1) if open_fence else ([], 0)
        if rule and line == rule and not open_fence:
            yield from _section(piece, fenced=False)
            piece, size = [], 0
            yield {"type": "divider"}
            continue
        piece.append(line)
        size += len(line) + 1
        open_fence ^= toggles
    yield from _section(piece, fenced=open_fence)


def _section(piece: Sequence[str], *, fenced: bool) -> Iterator[Fields]:
    text = "\n".join([*piece, *([_FENCE] if fenced else [])]).strip("\n")
    if text.strip():
        yield {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _lines(text: str) -> Iterator[str]:
    """Split into lines, short enough to leave room for fences."""
    limit = MAX_SECTION - 2 * (len(_FENCE) + 1)
    for line in text.split("\n"):
        yield from _cut(line, limit) if line else [""]


def _cut(text: str, limit: int) -> Iterator[str]:
    """Cut at spaces if there are any, and never within an entity or a link."""
    while len(text) > limit:
        end = max(text.rfind("\n", 0, limit), text.rfind(" ", 0, limit)) + 1 or limit
        opened = re.search(r"(?:&\w{0,4}|<[^<>]*)$", text[:end])
        if opened is not None and opened.start() > 0:
            end = opened.start()
        yield text[:end]
        text = text[end:]
    if text:
        yield text


def _plain_section(text: str) -> Fields:
    # Slack rejects sections that contain only spaces.
    shown = text if text.strip() else "\u200b"
    return {"type": "section", "text": {"type": "plain_text", "text": shown, "emoji": False}}


def _action_rows(choices: Sequence[Choice]) -> list[Fields]:
    if any(len(choice.value) > MAX_VALUE for choice in choices):
        raise NotSent("The value of a button is longer than Slack accepts.")
    return [
        {
            "type": "actions",
            "elements": [
                _button(choice, start + place)
                for place, choice in enumerate(choices[start : start + MAX_BUTTONS_IN_ROW])
            ],
        }
        for start in range(0, len(choices), MAX_BUTTONS_IN_ROW)
    ]


def _button(choice: Choice, place: int) -> Fields:
    label = choice.label[:MAX_LABEL]
    button: Fields = {
        "type": "button",
        "text": {"type": "plain_text", "text": label, "emoji": True},
        "value": choice.value,
        "action_id": f"choice_{place}",
    }
    word = label.lower()
    if word.startswith(_DENIALS):
        button["style"] = "danger"
    elif word.startswith(_CONSENTS):
        button["style"] = "primary"
    return button
