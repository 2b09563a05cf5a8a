"""The chat page: a conversation that streams, with files, questions, stop, steer and queue."""

import re
from collections.abc import Sequence
from typing import Literal

from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.approvals.service import Answerer
from hermes.commands.completion import suggestions
from hermes.kit.files import image_type
from hermes.kit.ids import new_id
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.messages import Media, Text
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session
from hermes.web import entries
from hermes.web.branches import family_list, read_family
from hermes.web.commands import CommandSummary, WebCommands
from hermes.web.context import (
    Handler,
    ProfileWeb,
    Route,
    WebContext,
    download_response,
    html_response,
    json_response,
    read_body,
    read_json,
)
from hermes.web.downloads import read_download
from hermes.web.html import Child, Html, h
from hermes.web.pages.layout import icon, render_page
from hermes.web.texts import text
from hermes.web.transcripts import TranscriptView, earlier_page, transcript_view
from hermes.web.uploads import message_parts

MAX_NAME = 200
MAX_DIGITS = 18
MAX_TYPED = 4_000
_DIGEST = re.compile(r"[0-9a-f]{32,128}")


class FileRef(Struct, frozen=True):
    digest: str
    media_type: str
    name: str


class SendRequest(Struct, frozen=True, kw_only=True):
    """`replaces` is the id of the question that the message replaces.

    `unsaved` names a page's conversation without a session, which a command has changed.
    """

    session: str = ""
    unsaved: str = ""
    text: str = ""
    files: tuple[FileRef, ...] = ()
    mode: Literal["send", "steer", "queue"] = "send"
    replaces: str = ""


class BranchRequest(Struct, frozen=True):
    """`message` is the id of the answer that the branch begins after."""

    message: str


class AnswerRequest(Struct, frozen=True):
    question: str
    answer: str


def routes(context: WebContext) -> list[Route]:
    handlers = _ChatHandlers(context)
    return [
        Route("GET", "/", handlers.start),
        Route("GET", "/chat/new", handlers.page),
        Route("GET", "/chat/commands", handlers.commands),
        Route("GET", "/chat/models", handlers.models),
        Route("GET", "/chat/complete", handlers.complete),
        Route("POST", "/chat/send", handlers.send),
        Route("POST", "/chat/files", handlers.upload),
        Route("GET", "/chat/files/{digest}", file_handler(context)),
        Route("GET", "/chat/{session}", handlers.page),
        Route("GET", "/chat/{session}/transcript", handlers.transcript),
        Route("GET", "/chat/{session}/earlier", handlers.earlier),
        Route("GET", "/chat/{session}/branches", handlers.branches),
        Route("GET", "/chat/{session}/file", handlers.download),
        Route("POST", "/chat/{session}/branch", handlers.branch),
        Route("POST", "/chat/{session}/stop", handlers.stop),
        Route("POST", "/chat/{session}/answer", handlers.answer),
    ]


class _ChatHandlers:
    def __init__(self, context: WebContext) -> None:
        self._context = context

    async def start(self, request: web.Request) -> web.Response:
        return web.Response(
            status=303, headers={"Location": f"{self._context.base(request)}/chat/new"}
        )

    async def page(self, request: web.Request) -> web.StreamResponse:
        profile = self._context.profile(request)
        name = request.match_info.get("session", "")
        session = await profile.app.store.archive_for(OWNER).get(name) if name else None
        view = await transcript_view(profile, session)
        commands = WebCommands(profile.app, profile.conversations)
        main = _chat(view, await commands.models(), session)
        return await render_page(
            request,
            self._context,
            name="chat",
            title=view.title,
            main=main,
            script="chat",
            position=view.position,
            data_session=name or None,
        )

    async def transcript(self, request: web.Request) -> web.Response:
        profile = self._context.profile(request)
        session = await profile.app.store.archive_for(OWNER).get(request.match_info["session"])
        return json_response(await transcript_view(profile, session))

    async def earlier(self, request: web.Request) -> web.Response:
        profile, before = self._context.profile(request), request.query.get("before", "")
        if not before.isdecimal() or len(before) > MAX_DIGITS:
            raise UsageError(text("bad_request"))
        page = await earlier_page(profile, request.match_info["session"], int(before))
        return html_response(page)

    async def download(self, request: web.Request) -> web.Response:
        """A file that a tool of the session has written."""
        app = self._context.profile(request).app
        session = await app.store.archive_for(OWNER).get(request.match_info["session"])
        name, data = await run_sync(read_download, app, session, request.query.get("path", ""))
        return download_response(name, data)

    async def branches(self, request: web.Request) -> web.Response:
        archive = self._context.profile(request).app.store.archive_for(OWNER)
        session = await archive.get(request.match_info["session"])
        family = await read_family(archive, session)
        return html_response(family_list(self._context.base(request), family, session.id))

    async def branch(self, request: web.Request) -> web.Response:
        body = await read_json(request, BranchRequest)
        conversations = self._context.profile(request).conversations
        conversation = await conversations.conversation(request.match_info["session"])
        return json_response({"session": (await conversation.branch(last=body.message)).id})

    async def complete(self, request: web.Request) -> web.Response:
        """Suggest completions for the text before the cursor: commands, files and folders."""
        profile = self._context.profile(request)
        app, name = profile.app, request.query.get("session", "")
        session = await app.store.archive_for(OWNER).get(name) if name else None
        folder = session.cwd if session and session.cwd else str(app.home.workspace)
        before = request.query.get("text", "")[-MAX_TYPED:]
        names = dict[str, str]()
        if before.startswith("/"):
            found = await WebCommands(app, profile.conversations).summaries()
            names = {one.name: f"{one.usage} {one.summary}".strip() for one in found}
        return json_response(await run_sync(suggestions, before, names, folder))

    async def commands(self, request: web.Request) -> web.Response:
        profile = self._context.profile(request)
        found: Sequence[CommandSummary] = await WebCommands(
            profile.app, profile.conversations
        ).summaries()
        return json_response(found)

    async def models(self, request: web.Request) -> web.Response:
        return json_response(await self._context.profile(request).models.offered())

    async def send(self, request: web.Request) -> web.Response:
        profile = self._context.profile(request)
        body = await read_json(request, SendRequest)
        line = body.text.strip()
        commands = WebCommands(profile.app, profile.conversations)
        outcome = None if body.files else await commands.run(body.session, line, body.unsaved)
        if outcome is None:
            files = [
                Media(file.digest, file.media_type, file.name[:MAX_NAME]) for file in body.files
            ]
            for file in files:
                _check_digest(file.digest)
            parts = await message_parts(profile.app, body.text, files)
            return json_response({"session": await self._submit(profile, body, parts)})
        session = outcome.session
        if outcome.submit:
            target = SendRequest(
                session=session or body.session, unsaved=outcome.unsaved, mode=body.mode
            )
            session = await self._submit(profile, target, outcome.submit)
        identity = new_id("reply")
        reply = entries.reply_entry(outcome.text, identity, is_diff=outcome.is_diff)
        html = reply if outcome.text and not outcome.submit else ""
        return json_response({
            "session": session, "unsaved": outcome.unsaved, "id": identity, "html": html,
            "reload": outcome.changed,
        })  # fmt: skip

    async def _submit(
        self, profile: ProfileWeb, body: SendRequest, parts: Sequence[Text | Media]
    ) -> str:
        conversations = profile.conversations
        if not parts and not body.replaces:
            raise UsageError(text("nothing_to_send"))
        if body.replaces or not conversations.is_running(body.session):
            return await conversations.send(
                body.session, parts, replaces=body.replaces, unsaved=body.unsaved
            )
        if body.mode == "queue":
            await conversations.queue(body.session, parts)
        else:
            await conversations.steer(body.session, parts)
        return body.session

    async def stop(self, request: web.Request) -> web.Response:
        profile = self._context.profile(request)
        texts = await profile.conversations.stop(request.match_info["session"])
        return json_response({"texts": texts})

    async def answer(self, request: web.Request) -> web.Response:
        profile = self._context.profile(request)
        body = await read_json(request, AnswerRequest)
        answerer = Answerer(session=request.match_info["session"])
        result = await profile.app.approvals.reply(answerer, body.answer, question=body.question)
        if result is None or not result.count:
            raise UsageError(result.message if result and result.message else text("too_late"))
        return json_response({"message": result.message})

    async def upload(self, request: web.Request) -> web.Response:
        app = self._context.profile(request).app
        data = await read_body(request, self._context.settings.max_upload)
        name = request.query.get("name", "").replace("\n", " ")[:MAX_NAME] or "file"
        kind = image_type(data) or request.content_type
        media = await app.blobs.put(data, kind, name)
        return json_response(FileRef(media.digest, media.media_type, media.name))


def file_handler(context: WebContext) -> Handler:
    """A stored file; only images are shown, and nothing in it can run."""

    async def file(request: web.Request) -> web.Response:
        digest = request.match_info["digest"]
        _check_digest(digest)
        data = await context.profile(request).app.blobs.read(digest)
        kind = image_type(data)
        headers = {
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "Content-Disposition": "inline" if kind else "attachment",
            "Cache-Control": "private, max-age=31536000, immutable",
        }
        return web.Response(
            body=data, content_type=kind or "application/octet-stream", headers=headers
        )

    return file


def _chat(view: TranscriptView, models: Sequence[str], session: Session | None) -> Child:
    return h(
        "hermes-chat",
        h(
            "div",
            h("h1", view.title, id="title", dir="auto"),
            h("span", class_="status", id="status", role="status"),
            h("button", icon("branches"), type="button", class_="icon-button", id="branches",
              data_action="branches", aria_label=text("branches"), title=text("branches"),
              hidden=session is None),
            _model_picker(view.model, models),
            class_="bar",
        ),
        h("div", _pager("earlier"),
          h("div", Html(view.html), id="log", role="log", aria_label=text("conversation")),
          _pager("later"), class_="scroll", tabindex="0"),
        h("button", icon("down"), type="button", class_="to-end", data_action="to-end",
          aria_label=text("to_end"), hidden=True),
        _composer(view.queue),
        data_running=view.running,
        data_here=view.here,
        data_source=view.source or None,
        data_title=session.title if session else None,
    )  # fmt: skip


def _pager(name: str) -> Html:
    return h("button", text(name), type="button", class_="pager", data_action=name, hidden=True)


def _model_picker(current: str, models: Sequence[str]) -> Html:
    """The values are what `/model` takes."""
    provider, _, name = current.partition("/")
    # If no model is named, a sentence describes it.
    value = f"{name} --provider {provider}" if name and " " not in current else ""
    shown = [model for model in models if model.partition(" ")[0] != name]
    options = [h("option", current or text("no_model"), value=value)]
    options += [h("option", one.partition(" ")[0], value=one) for one in shown]
    return h("select", *options, id="model", aria_label=text("model"), autocomplete="off")


def _composer(queue: Sequence[str]) -> Html:
    modes = h(
        "select",
        h("option", text("mode_steer"), value="steer"),
        h("option", text("mode_queue"), value="queue"),
        id="mode",
        aria_label=text("mode"),
        hidden=True,
    )
    return h(
        "form",
        h("ul", *(h("li", one, dir="auto") for one in queue), id="queue", aria_label=text("queued"),
          hidden=not queue),
        h("ul", id="files", aria_label=text("files"), hidden=True),
        h("p", id="editing", class_="hint", hidden=True),
        h("div", id="completion", role="listbox", aria_label=text("suggestions"), hidden=True),
        h("textarea", id="message", rows="1", dir="auto", aria_label=text("message"),
          placeholder=text("message_hint"), aria_controls="completion", autocomplete="off"),
        h(
            "div",
            h("button", icon("clip"), type="button", class_="icon-button", data_action="attach",
              aria_label=text("attach")),
            h("input", type="file", id="file", multiple=True, hidden=True, tabindex="-1",
              aria_label=text("attach")),
            modes,
            h("span", class_="space"),
            h("button", icon("stop"), text("stop"), type="button", class_="stop",
              data_action="stop", hidden=True),
            h("button", icon("send"), text("send"), type="submit", class_="primary"),
            class_="row",
        ),
        class_="composer",
    )  # fmt: skip


def _check_digest(digest: str) -> None:
    if not _DIGEST.fullmatch(digest):
        raise NotFound(text("no_file"))
