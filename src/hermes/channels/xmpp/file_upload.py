"""Put files on the XMPP server, so that their addresses can be sent (XEP-0363)."""

from urllib.parse import quote
from xml.etree.ElementTree import Element

from hermes.channels.http_client import HttpBody, HttpClient
from hermes.channels.xmpp.connection import RequestRefused, XmppConnection
from hermes.channels.xmpp.stanzas import CLIENT, OOB, UPLOAD, element
from hermes.ports.channel import Attachment, NotSent, UnknownOutcome
from hermes.ports.store import Blobs
from hermes.schema.messages import Media


class FileUpload:
    """Uploads files of one account; the server's service is looked up once."""

    def __init__(self, http: HttpClient, blobs: Blobs) -> None:
        self._http = http
        self._blobs = blobs
        self._service = ""

    async def share(self, connection: XmppConnection, attachment: Attachment) -> list[Element]:
        """Upload the file; its URL is also the message's text."""
        media = attachment.media
        data = await self._blobs.read(media.digest)
        slot = await self._slot(connection, media, len(data))
        put, get = slot.find(f"{{{UPLOAD}}}put"), slot.find(f"{{{UPLOAD}}}get")
        if put is None or get is None:
            raise NotSent("The XMPP server returned no upload address for the file.")
        headers = {header.get("name", ""): header.text or "" for header in put}
        headers["Content-Type"] = media.media_type
        try:
            answer = await self._http.call("PUT", put.get("url", ""), HttpBody(data, headers))
        except UnknownOutcome as error:
            # A file counts as sent only once its URL was sent.
            raise NotSent(str(error)) from error
        if not answer.ok:
            raise NotSent(f"The XMPP server refused the file: {answer.status}")
        url = get.get("url", "")
        body = f"{attachment.caption}\n{url}" if attachment.caption else url
        shared = element(OOB, "x")
        shared.append(element(OOB, "url", url))
        return [element(CLIENT, "body", body), shared]

    async def _slot(self, connection: XmppConnection, media: Media, size: int) -> Element:
        upload = await self._find_service(connection)
        name = quote(media.name, safe=" .-_()") or "file"
        request = element(
            UPLOAD, "request", filename=name, size=str(size), **{"content-type": media.media_type}
        )
        try:
            answer = await connection.ask("get", upload, request)
        except UnknownOutcome as error:
            raise NotSent(str(error)) from error
        slot = answer.find(f"{{{UPLOAD}}}slot")
        if slot is None:
            raise NotSent("The XMPP server returned no upload address for the file.")
        return slot

    async def _find_service(self, connection: XmppConnection) -> str:
        """Find the server's upload service among its components."""
        if self._service:
            return self._service
        server = connection.own.partition("@")[2]
        items_ns, info_ns = (
            f"http://jabber.org/protocol/disco#{name}" for name in ("items", "info")
        )
        try:
            items = await connection.ask("get", server, element(items_ns, "query"))
            parts = [item.get("jid", "") for item in items.iter(f"{{{items_ns}}}item")]
            for part in [server, *parts]:
                info = await connection.ask("get", part, element(info_ns, "query"))
                features = [feature.get("var") for feature in info.iter(f"{{{info_ns}}}feature")]
                if UPLOAD in features:
                    self._service = part
                    return part
        except (RequestRefused, UnknownOutcome) as error:
            raise NotSent(f"The XMPP server's services cannot be listed: {error}") from error
        raise NotSent("The XMPP server does not support file uploads (XEP-0363).")
