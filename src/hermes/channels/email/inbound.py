"""Turn a mail into an inbound update, or say why it is ignored."""

from datetime import datetime

from msgspec import Struct, structs

from hermes.channels.email.automatic_mail import LoopGuard, reason_to_ignore
from hermes.channels.email.mail_records import MailRecords
from hermes.channels.email.received_mail import AttachedPart, ReceivedMail, bare_subject
from hermes.channels.email.sender_check import problem_with_sender
from hermes.channels.received_files import AttachedFile, ReceivedFiles
from hermes.ports.channel import Inbound, InboundDetails
from hermes.schema.messages import SENT_FILES_HEADER, Media, Text, quoted_text
from hermes.schema.scope import Address

MAX_TEXT = 100_000
MAX_QUOTE = 20_000
CUT = "\n(The email is longer; the rest was cut off.)"
TOO_LARGE = "(The email is too large to be read: only its header is shown. Say so.)"


class InboundRules(Struct, frozen=True, kw_only=True):
    """Which senders are trusted, and how files are handled.

    With `trust_from`, the `From` header is trusted without proof.
    """

    trust_from: bool
    authserv_id: str
    skip_attachments: bool
    max_file_bytes: int


class InboundBuilder:
    """Builds updates for the channel `name`, whose address is `own`."""

    def __init__(
        self,
        *,
        name: str,
        own: str,
        rules: InboundRules,
        records: MailRecords,
        files: ReceivedFiles,
        loops: LoopGuard,
    ) -> None:
        self._name = name
        self._own = own
        self._rules = rules
        self._records = records
        self._files = files
        self._loops = loops

    def reason_to_ignore(self, mail: ReceivedMail) -> str:
        """Return why the mail is ignored, or an empty text. Large headers take time."""
        if reason := reason_to_ignore(mail.mail, mail.sender, self._own):
            return reason
        if not self._rules.trust_from:
            results, server = mail.authentication_results, self._rules.authserv_id
            if problem := problem_with_sender(mail.sender, results, server):
                return f"its sender is not authenticated: {problem}"
        return ""

    def is_loop(self, mail: ReceivedMail, arrived: datetime) -> bool:
        return self._loops.is_loop(mail.sender, mail.thread, mail.key, arrived)

    def delivered(self, mail: ReceivedMail) -> None:
        """Record that the session has the mail, so that quotes from it need not be repeated."""
        self._records.add_thread(mail.sender, mail.thread, bare_subject(mail.subject))

    async def build(self, mail: ReceivedMail, *, whole: bool = True) -> Inbound:
        """Build the update. Without `whole`, only the header of the mail was fetched."""
        known = self._records.knows_thread(mail.sender, mail.thread)
        inbound = Inbound(
            key=f"{self._own}:{mail.key}",
            address=Address(self._name, mail.sender, mail.thread),
            sender=mail.sender,
            parts=(),
            reply_to=mail.parent or None,
            message=mail.message_id,
            about=InboundDetails(
                chat_name=mail.sender_name or mail.sender,
                chat_topic=mail.subject,
                user_name=mail.sender_name,
                mentions=True,
            ),
        )
        if mail.attachments and (refused := await self._files.refused(inbound)):
            return refused
        parts = await self._parts(mail, known=known) if whole else [_titled(mail, TOO_LARGE)]
        return structs.replace(inbound, parts=tuple(parts))

    async def _file(self, part: AttachedPart) -> list[Text | Media]:
        """Return a file; speech is transcribed like a voice note, once the sender is admitted."""
        if not part.media_type.startswith("audio/"):
            return await self._files.add(part.name, part.media_type, part.data)
        file = AttachedFile(name=part.name, media_type=part.media_type, recording="audio")
        return await self._files.add_recording(file, part.data)

    async def _parts(self, mail: ReceivedMail, *, known: bool) -> list[Text | Media]:
        """Return the sender's text, then files, then what others wrote, marked as quoted."""
        files: list[Text | Media] = []
        for file in mail.attachments:
            if self._rules.skip_attachments:
                files.append(Text(f"(file {file.name} was left out, as the settings say.)"))
            elif len(file.data) > self._rules.max_file_bytes:
                limit = self._rules.max_file_bytes // 1_000_000
                files.append(
                    Text(f"(file {file.name} was left out: it is larger than {limit} MB.)")
                )
            else:
                files += await self._file(file)
        # The session of a known thread already has the quoted text, but not an interleaved answer
        # to it.
        is_repeated = known and mail.is_reply and not mail.text.follows
        quoted = "" if is_repeated else mail.text.quoted
        others = [Text(quoted_text("an earlier email", _cut(quoted, MAX_QUOTE)))] if quoted else []
        text = _cut(mail.text.written, MAX_TEXT)
        needs_text = not files or others or _is_attachment(files[0])
        if not text and needs_text:
            text = "(no text)"
        written = [_titled(mail, text)] if text else []
        return [*written, *files, *others]


def _titled(mail: ReceivedMail, text: str) -> Text:
    """Put the subject above the first mail of a thread, unless it begins with a slash command."""
    if mail.is_reply or not mail.subject or text.startswith("/"):
        return Text(text)
    return Text(f"[Subject: {mail.subject}]\n\n{text}")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + CUT


def _is_attachment(part: Text | Media) -> bool:
    return isinstance(part, Text) and part.text.startswith(SENT_FILES_HEADER)
