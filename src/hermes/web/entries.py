"""Render the entries of a conversation: messages, tool cards, questions and notices."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from hermes.approvals.messages import MAX_REASON
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.readable_result import readable_result
from hermes.kit.report_text import REPORT_START, report_text
from hermes.kit.terminal_text import show_invisible, show_invisible_line
from hermes.schema.messages import (
    Assistant,
    Media,
    Reasoning,
    Result,
    Stop,
    Text,
    ToolCall,
    Trust,
    User,
    display_parts,
    text_of,
)
from hermes.schema.questions import Question, QuestionKind
from hermes.schema.sessions import StoredMessage
from hermes.web.highlight import diff, looks_like_diff
from hermes.web.html import Child, Html, h
from hermes.web.markdown import code_block, render
from hermes.web.texts import text
from hermes.web.times import duration

MAX_OUTPUT = 20_000
"""Characters of a tool's output on a card; the end is shown."""
MAX_SUMMARY = 120
MAX_REPORT = 400
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_WRITERS = frozenset({"write_file", "patch"})
_LANGUAGES = {"command": "bash", "code": "python"}
"""Arguments that are shown as they are, before the others."""
_COMMAND_KEYS = ("command", "code", "path", "query", "url", "pattern", "prompt", "name")


class _ShownFiles(Struct, frozen=True):
    """The part of a result of `send_message` that names files to download."""

    files: tuple[str, ...] = ()


def card_id(call: str) -> str:
    """Return an element id: call ids come from providers and may contain any character."""
    return "t-" + hashlib.sha256(call.encode()).hexdigest()[:16]


def message_id(message: User | Assistant | Result) -> str:
    return f"m-{message.id}"


def transcript(
    rows: Sequence[StoredMessage], progress: Mapping[str, str] | None = None
) -> list[Html]:
    """The entries of stored messages; results are shown on the cards of their calls.

    `progress` is what the calls of a running turn have written so far, None if none is running.
    """
    results = {row.message.call: row for row in rows if isinstance(row.message, Result)}
    found: list[Html] = []
    last = len(rows) - 1
    for position, row in enumerate(rows):
        match row.message:
            case User() as user:
                if user.trust is not Trust.PROGRAM:
                    found.append(user_entry(user, row.at, row.seq))
            case Assistant() as answer:
                pending = progress if position >= last - len(answer.calls) else None
                found.append(answer_entry(answer, results, row.at, pending, seq=row.seq))
            case Result():
                continue
    return found


def user_entry(user: User, at: datetime, seq: int | None = None) -> Html:
    parts: list[Child] = []
    for part in display_parts(user):
        match part:
            case Text(text=words):
                is_report = user.trust is Trust.DATA and words.startswith(REPORT_START)
                shown = report_text(words, MAX_REPORT) if is_report else words
                parts.append(h("div", shown, class_="text", dir="auto"))
            case Media() as media:
                parts.append(attachment(media))
    tools = h(
        "div",
        h("button", text("edit"), type="button", class_="quiet", data_action="edit"),
        h("button", text("retry"), type="button", class_="quiet", data_action="retry"),
        class_="actions",
    )
    return h(
        "article",
        h("h3", text("you"), class_="visually-hidden"),
        h("div", *parts, class_="bubble"),
        tools if user.trust is Trust.OWNER else h("p", text("not_owner"), class_="hint"),
        id=message_id(user),
        class_="entry user",
        data_message=user.id,
        data_at=at.isoformat(),
        data_seq=seq,
    )


def answer_entry(
    answer: Assistant,
    results: Mapping[str, StoredMessage],
    at: datetime,
    progress: Mapping[str, str] | None = None,
    rendered: Mapping[str, Html] | None = None,
    *,
    seq: int | None = None,
) -> Html:
    """`progress` as for `transcript`: without it, a call without a result was lost.

    `rendered` has the HTML of texts that are rendered already.
    """
    parts: list[Child] = []
    for part in answer.parts:
        match part:
            case Text(text=words):
                body = (rendered or {}).get(words) or render(words)
                # The copy button copies the Markdown source.
                source = None if answer.calls else words
                parts.append(h("div", body, class_="md", dir="auto", data_source=source))
            case Reasoning(text=words):
                parts.append(reasoning(words))
            case ToolCall() as call:
                parts.append(_call_card(call, results.get(call.id), at, progress))
    if answer.stop is Stop.CANCELLED:
        parts.append(h("p", text("cancelled"), class_="hint"))
    if answer.text and not answer.calls:
        buttons = (_quiet_button("copy_answer", "copy"), _quiet_button("branch", "branch"))
        parts.append(h("div", *buttons, class_="actions"))
    return h(
        "article",
        h("h3", text("agent"), class_="visually-hidden"),
        *parts,
        id=message_id(answer),
        class_="entry assistant",
        data_message=answer.id,
        data_at=at.isoformat(),
        data_seq=seq,
    )


def _quiet_button(label: str, action: str) -> Html:
    return h("button", text(label), type="button", class_="quiet", data_action=action)


def _call_card(
    call: ToolCall, row: StoredMessage | None, at: datetime, progress: Mapping[str, str] | None
) -> Html:
    """The card of a call in an answer; `row` is its result, if it has one."""
    return tool_card(
        call,
        row.message if row and isinstance(row.message, Result) else None,
        seconds=(row.at - at).total_seconds() if row else None,
        running=progress is not None,
        progress=(progress or {}).get(call.id, ""),
    )


def live_entry(identity: str, blocks: Sequence[Html], thoughts: str) -> Html:
    """The answer that is being written; its blocks are replaced one by one."""
    return h(
        "article",
        h("h3", text("agent"), class_="visually-hidden"),
        reasoning(thoughts, is_open=not blocks) if thoughts else None,
        h("div", *blocks, class_="md live", dir="auto"),
        id=identity,
        class_="entry assistant",
    )


def reasoning(words: str, *, is_open: bool = False) -> Html:
    return h(
        "details",
        h("summary", text("reasoning")),
        h("div", words, class_="text", dir="auto"),
        class_="reasoning",
        open=is_open,
    )


def tool_card(
    call: ToolCall,
    result: Result | None,
    *,
    seconds: float | None = None,
    running: bool = False,
    progress: str = "",
) -> Html:
    """Render an expandable card: the call, its output or diff, and its duration."""
    state = _state(result, running=running)
    took = h("span", duration(seconds), class_="took") if seconds is not None else None
    body: list[Child] = []
    # A diff shows what was written as lines instead of a quoted string.
    if result is None or not _is_diff(result):
        body += [code_block(_cut(words), language) for words, language in _arguments(call)]
    if progress:
        body.append(h("pre", progress[-MAX_OUTPUT:], class_="progress"))
    if result is not None:
        body += _output(result)
        body += [] if result.failed else _downloads(call, result)
    return h(
        "details",
        h(
            "summary",
            h("span", class_=f"state {state}", aria_hidden="true"),
            h("b", call.name),
            h("span", _summary(call), class_="what"),
            h("span", text(f"tool_{state}"), class_="visually-hidden"),
            took,
        ),
        h("div", *body, class_="body"),
        id=card_id(call.id),
        class_=f"tool {state}",
    )


def question_entry(question: Question, answer: str | None = None) -> Html:
    """A question with its choices as buttons; with an answer, what was chosen."""
    approval = question.kind is QuestionKind.APPROVAL
    title = text("approval_title" if approval else "question_title")
    body: list[Child] = [h("h3", title)]
    if approval:
        # The decision comes first, in our words; the model's reason is labelled as such.
        body.append(h("p", show_invisible(question.text), dir="auto"))
        body.append(code_block(show_invisible(question.subject)) if question.subject else None)
        reason = text("reason", reason=show_invisible_line(question.reason, MAX_REASON))
        body.append(h("p", reason, class_="hint", dir="auto") if question.reason else None)
        body.append(h("p", text("asked_by", who=question.origin), class_="hint"))
    else:
        body.append(h("div", render(question.text), class_="md", dir="auto"))
    if answer is not None:
        shown = text(f"choice_{answer}") if approval and answer in question.choices else answer
        body.append(h("p", text("answered", answer=shown or text("expired")), class_="hint"))
    else:
        body.append(_choices(question, approval=approval))
    return h(
        "article",
        *body,
        id=f"q-{question.id}",
        class_="entry question" + ("" if answer is None else " done"),
        data_question=question.id,
        data_session=question.session,
    )


def _choices(question: Question, *, approval: bool) -> Html:
    buttons = [
        h(
            "button",
            text(f"choice_{choice}") if approval else choice,
            type="button",
            data_action="answer",
            data_answer=choice,
            class_="danger" if choice == "deny" and approval else None,
        )
        for choice in question.choices
    ]
    field: Child = None
    if not approval:
        label = text("your_answer")
        field = h(
            "form",
            h("input", name="answer", aria_label=label, placeholder=label, autocomplete="off"),
            h("button", text("send"), type="submit"),
            class_="row",
            data_action="answer-text",
        )
    return h("div", h("div", *buttons, class_="row", role="group"), field)


def notice_entry(words: str, identity: str, *, kind: str = "notice") -> Html:
    role = "alert" if kind == "error" else "status"
    return h("article", h("p", words, dir="auto"), id=identity, class_=f"entry {kind}", role=role)


def reply_entry(words: str, identity: str, *, is_diff: bool = False) -> Html:
    """The reply to a slash command, in columns as in a terminal."""
    body = h("pre", diff(words) if is_diff else words, tabindex="0")
    return h("article", body, id=identity, class_="entry reply", role="status")


def attachment(media: Media) -> Html:
    name = media.name or media.media_type
    address = f"files/{media.digest}"
    if media.media_type in _IMAGES:
        return h("a", h("img", src=address, alt=name, loading="lazy"), href=address)
    return h("a", name, href=address, class_="file", download=name)


def _state(result: Result | None, *, running: bool) -> str:
    if result is None:
        return "running" if running else "lost"
    return "failed" if result.failed else "done"


def _arguments(call: ToolCall) -> list[tuple[str, str]]:
    """Return the arguments in readable form, each text with its language; a command unchanged."""
    arguments = _arguments_of(call)
    if call.broken:
        return [(call.broken, "")]
    found: list[tuple[str, str]] = []
    for key, language in _LANGUAGES.items():
        if isinstance(words := arguments.get(key), str):
            found.append((words, language))
            del arguments[key]
    if arguments or not found:
        rest = msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()
        found.append((rest, "json"))
    return found


def _cut(words: str) -> str:
    rest = "\n" + text("arguments_cut") if len(words) > MAX_OUTPUT else ""
    return words[:MAX_OUTPUT] + rest


def _arguments_of(call: ToolCall) -> dict[str, object]:
    try:
        return msgspec.json.decode(call.args, type=dict[str, object])
    except JSON_ERRORS:
        return {}


def _summary(call: ToolCall) -> str:
    arguments = _arguments_of(call)
    found = next(
        (arguments[key] for key in _COMMAND_KEYS if isinstance(arguments.get(key), str)), ""
    )
    return str(found).strip().split("\n", 1)[0][:MAX_SUMMARY]


def _downloads(call: ToolCall, result: Result) -> list[Child]:
    """Return download buttons for the files that a call wrote or shows."""
    if call.name == "send_message":
        try:
            shown = msgspec.json.decode(text_of(result), type=_ShownFiles)
        except JSON_ERRORS:
            return []
        return [_download(file) for file in shown.files]
    path = _arguments_of(call).get("path")
    return [_download(path)] if call.name in _WRITERS and isinstance(path, str) else []


def _download(path: str) -> Html:
    label = text("download", name=path.rpartition("/")[2][:MAX_SUMMARY])
    return h("button", label, type="button", class_="quiet", data_action="download", data_path=path)


def _is_diff(result: Result) -> bool:
    return not result.failed and looks_like_diff(result.shown)


def _output(result: Result) -> list[Child]:
    """Return the diff, or the output as lines: JSON results are meant for the model."""
    body: list[Child] = []
    if _is_diff(result):
        body.append(h("pre", diff(result.shown[:MAX_OUTPUT]), class_="diff", tabindex="0"))
    elif words := result.shown or readable_result(text_of(result)):
        cut = text("output_cut") + "\n" if len(words) > MAX_OUTPUT else ""
        body.append(h("pre", cut + words[-MAX_OUTPUT:], class_="output", tabindex="0"))
    body += [attachment(part) for part in result.parts if isinstance(part, Media)]
    return body
