"""The documented rules of message payloads, commands and threads; violations have their codes."""

import re
from collections.abc import Mapping

from emulators.discord import embeds
from emulators.discord.state import Json

MAX_CONTENT = 2000
MAX_NONCE = 25
MAX_FILES = 10
MAX_FILE = 20 * 1024 * 1024
MAX_REQUEST = 25 * 1024 * 1024
MAX_ALT_TEXT = 1024
MAX_ROWS = 5
MAX_BUTTONS = 5
MAX_OPTIONS = 25
MAX_CUSTOM_ID = 100
MAX_LABEL = 80
MAX_URL = 512
MAX_OPTION = 100
MAX_PLACEHOLDER = 150
MAX_COMMANDS = 100
MAX_COMMAND_TEXT = 8000
MAX_MENTIONS = 100
MAX_REACTIONS = 20
ARCHIVE_MINUTES = frozenset({60, 1440, 4320, 10080})
CALLBACKS = frozenset({1, 4, 5, 6, 7, 8, 9, 12})
COMPONENT_CALLBACKS = frozenset({6, 7})
MESSAGE_COMPONENT = 3
_COMMAND_TEXTS = ("name", "description", "value")
_COMMAND = re.compile(r"[-_'\w]{1,32}")


class ApiError(Exception):
    """A refused request: HTTP status, Discord's code, and the fields that are wrong."""

    def __init__(
        self, status: int, code: int, message: str, errors: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.errors = errors or {}

    @property
    def body(self) -> Json:
        body: Json = {"code": self.code, "message": str(self)}
        if self.errors:
            body["errors"] = {
                name: {"_errors": [{"code": "INVALID", "message": text}]}
                for name, text in self.errors.items()
            }
        return body


TOO_LARGE = ApiError(413, 40005, "Request entity too large")
EMPTY = ApiError(400, 50006, "Cannot send an empty message")


def invalid(field: str, text: str) -> ApiError:
    return ApiError(400, 50035, "Invalid Form Body", {field: text})


def check_message(body: Json, files: Mapping[str, bytes], *, edited: bool = False) -> None:
    """Check what is sent or edited. Raises `ApiError`."""
    content = str(body.get("content") or "")
    if len(content) > MAX_CONTENT:
        raise invalid("content", f"Must be {MAX_CONTENT} or fewer in length.")
    nonce = body.get("nonce")
    if nonce is not None and len(str(nonce)) > MAX_NONCE:
        raise invalid("nonce", f"Must be {MAX_NONCE} or fewer in length.")
    if len(files) > MAX_FILES:
        raise ApiError(400, 30015, f"Maximum number of attachments reached ({MAX_FILES})")
    if any(len(data) > MAX_FILE for data in files.values()):
        raise TOO_LARGE
    for one in tables(body.get("attachments")):
        if len(str(one.get("description") or "")) > MAX_ALT_TEXT:
            raise invalid("description", f"Must be {MAX_ALT_TEXT} or fewer in length.")
    is_voice = bool(int(str(body.get("flags") or 0)) & (1 << 13))
    if is_voice:
        _check_voice(body, files)
    elif not edited and is_empty(body, files):
        raise EMPTY
    if field := embeds.wrong_field(tables(body.get("embeds"))):
        raise invalid(field, "Invalid embed")
    _check_mentions(body.get("allowed_mentions"))
    check_components(body.get("components"))


def is_empty(body: Json, files: Mapping[str, bytes]) -> bool:
    text = str(body.get("content") or "").strip()
    return not (text or files or body.get("embeds") or body.get("components"))


def _check_voice(body: Json, files: Mapping[str, bytes]) -> None:
    if body.get("content") or body.get("embeds") or body.get("components"):
        raise ApiError(400, 50159, "Voice messages do not support additional content.")
    if len(files) != 1:
        raise ApiError(400, 50160, "Voice messages must have a single audio attachment.")
    (entry,) = tables(body.get("attachments")) or [{}]
    if not isinstance(entry.get("duration_secs"), int | float) or not entry.get("waveform"):
        raise ApiError(400, 50161, "Voice messages must have supporting metadata.")


def _check_mentions(value: object) -> None:
    allowed = table(value)
    parse = allowed.get("parse")
    kinds = parse if isinstance(parse, list) else []  # pyright: ignore[reportUnknownVariableType]
    if any(one not in {"roles", "users", "everyone"} for one in kinds):  # pyright: ignore[reportUnknownVariableType]
        raise invalid("allowed_mentions.parse", "Value must be one of: roles, users, everyone.")
    for name in ("users", "roles"):
        if len(tables(allowed.get(name))) > MAX_MENTIONS:
            raise invalid(f"allowed_mentions.{name}", f"Must be {MAX_MENTIONS} or fewer in length.")
        if name in kinds and allowed.get(name):
            raise invalid("allowed_mentions", f"parse:{name} and {name} are mutually exclusive.")


def check_components(value: object) -> None:
    rows = tables(value)
    if len(rows) > MAX_ROWS:
        raise invalid("components", f"Must be {MAX_ROWS} or fewer in length.")
    seen: set[str] = set()
    for row in rows:
        inner = tables(row.get("components"))
        if row.get("type") != 1 or not inner:
            raise invalid("components", "A row must contain components.")
        selects = [one for one in inner if one.get("type") == 3]
        if len(inner) > (1 if selects else MAX_BUTTONS):
            raise invalid("components", "A row holds up to five buttons or one select menu.")
        for one in inner:
            if one.get("type") == 2 and one.get("style") == 5:
                _check_link(one)
                continue
            name = str(one.get("custom_id") or "")
            if not 1 <= len(name) <= MAX_CUSTOM_ID:
                raise invalid("custom_id", f"Must be between 1 and {MAX_CUSTOM_ID} in length.")
            if name in seen:
                raise invalid("custom_id", "Component custom id cannot be duplicated")
            seen.add(name)
            (_check_select if one.get("type") == 3 else _check_button)(one)


def _check_button(one: Json) -> None:
    label = str(one.get("label") or "")
    if len(label) > MAX_LABEL:
        raise invalid("label", f"Must be {MAX_LABEL} or fewer in length.")
    if one.get("style") not in {1, 2, 3, 4} or not label:
        raise invalid("style", "A button needs a style and a label.")
    if one.get("url"):
        raise invalid("url", "Only a link button can have a url.")


def _check_link(one: Json) -> None:
    if not one.get("url") or one.get("custom_id"):
        raise invalid("url", "A link button must have a url and cannot have a custom_id.")
    if len(str(one["url"])) > MAX_URL:
        raise invalid("url", f"Must be {MAX_URL} or fewer in length.")


def _check_select(one: Json) -> None:
    options = tables(one.get("options"))
    if not 1 <= len(options) <= MAX_OPTIONS:
        raise invalid("options", f"Must be between 1 and {MAX_OPTIONS} in length.")
    for option in options:
        for name in ("label", "value"):
            if not 1 <= len(str(option.get(name) or "")) <= MAX_OPTION:
                raise invalid(name, f"Must be between 1 and {MAX_OPTION} in length.")
        if len(str(option.get("description") or "")) > MAX_OPTION:
            raise invalid("description", f"Must be {MAX_OPTION} or fewer in length.")
    if len(str(one.get("placeholder") or "")) > MAX_PLACEHOLDER:
        raise invalid("placeholder", f"Must be {MAX_PLACEHOLDER} or fewer in length.")
    for name, least in (("min_values", 0), ("max_values", 1)):
        if not least <= int(str(one.get(name, 1))) <= MAX_OPTIONS:
            raise invalid(name, f"int value should be between {least} and {MAX_OPTIONS}.")
    if len({str(option["value"]) for option in options}) < len(options):
        raise invalid("options", "The specified option value is already used")


def check_commands(commands: list[Json]) -> None:
    if len(commands) > MAX_COMMANDS:
        raise ApiError(400, 30032, f"Maximum number of application commands ({MAX_COMMANDS})")
    for one in commands:
        options = tables(one.get("options"))
        _check_options(options)
        choices = [choice for option in options for choice in tables(option.get("choices"))]
        entries = (one, *options, *choices)
        texts = [str(entry.get(key) or "") for entry in entries for key in _COMMAND_TEXTS]
        if sum(map(len, texts)) > MAX_COMMAND_TEXT:
            raise invalid("_errors", f"Command exceeds maximum size ({MAX_COMMAND_TEXT})")
        for entry in (one, *options):
            name = str(entry.get("name") or "")
            if not _COMMAND.fullmatch(name) or name != name.lower():
                raise invalid("name", "Command name is invalid")
            if not 1 <= len(str(entry.get("description") or "")) <= 100:
                raise invalid("description", "Must be between 1 and 100 in length.")
    if len({str(one["name"]) for one in commands}) < len(commands):
        raise invalid("name", "Application command names must be unique")


def _check_options(options: list[Json]) -> None:
    if len(options) > MAX_OPTIONS:
        raise invalid("options", f"Must be {MAX_OPTIONS} or fewer in length.")
    required = [bool(one.get("required")) for one in options]
    if required != sorted(required, reverse=True):
        raise invalid("options", "Required options must be placed before non-required options")
    if any(len(tables(one.get("choices"))) > MAX_OPTIONS for one in options):
        raise invalid("choices", f"Must be {MAX_OPTIONS} or fewer in length.")


def check_thread(fields: Json) -> None:
    if not 1 <= len(str(fields.get("name") or "")) <= 100:
        raise invalid("name", "Must be between 1 and 100 in length.")
    if fields.get("auto_archive_duration", 60) not in ARCHIVE_MINUTES:
        raise invalid("auto_archive_duration", "Value must be one of (60, 1440, 4320, 10080).")


def check_callback(fields: Json, interaction: object) -> None:
    """Check a response to an interaction of this type; 4 and 7 contain a message."""
    if fields.get("type") not in CALLBACKS:
        raise invalid("type", "Value is not a type of callback.")
    if fields["type"] in COMPONENT_CALLBACKS and interaction != MESSAGE_COMPONENT:
        raise invalid("type", "Only components can be answered in this way.")
    if fields["type"] in {4, 7}:
        check_message(table(fields.get("data")), {}, edited=fields["type"] == 7)


def table(value: object) -> Json:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def tables(value: object) -> list[Json]:
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]
