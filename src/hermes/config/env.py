"""The environment and `.env` files as layered mappings; only here `os.environ` is read."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from hermes.kit.errors import ConfigError
from hermes.kit.files import file_error, read_regular_file

BASE_VARIABLES = frozenset(
    {
        "COLORTERM",
        "HOME",
        "LANG",
        "LANGUAGE",
        "LOGNAME",
        "PATH",
        "SHELL",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TERM",
        "TMPDIR",
        "TZ",
        "USER",
        "all_proxy",
        "ftp_proxy",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    }
)
BASE_PREFIXES = ("LC_", "XDG_")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def process_env() -> dict[str, str]:
    """A copy of the process environment as it is now."""
    return dict(os.environ)


def process_value(name: str, default: str = "") -> str:
    """One variable of the process environment, for compatibility modules."""
    return os.environ.get(name, default)


def set_process_value(name: str, value: str) -> None:
    """Set a variable for programs of the public system, whose interface includes it."""
    os.environ[name] = value


def set_term(name: str) -> None:
    """Set TERM for libraries that read the environment themselves."""
    os.environ["TERM"] = name


class Env(dict[str, str]):
    """Variables in layers; the first layer with a name wins.

    A profile's `.env` is put over the process environment, so that several
    profiles in one process each see their own. `repr` never shows values.
    """

    __slots__ = ("_layers", "profile_names")

    def __init__(self, *layers: Mapping[str, str]) -> None:
        super().__init__()
        self._layers = tuple(map(dict, layers))
        for layer in reversed(self._layers):
            self.update(layer)
        self.profile_names = frozenset(name for layer in self._layers[:-1] for name in layer)
        """Names set above the lowest layer, that is, by the profile."""

    def overlaid(self, layer: Mapping[str, str]) -> "Env":
        """The same variables with `layer` on top."""
        return Env(layer, *self._layers)

    def reread(self, layer: Mapping[str, str]) -> "Env":
        """The variables of the process with `layer` on top, instead of what was there before."""
        return Env(layer, self._layers[-1])

    def __repr__(self) -> str:
        return f"Env({len(self)} variables)"


def base_env(process: Mapping[str, str]) -> dict[str, str]:
    """The environment of an owner's program outside any scope: what any program needs."""
    plain = {
        name: process[name]
        for name in process
        if name in BASE_VARIABLES or name.startswith(BASE_PREFIXES)
    }
    return {"PATH": DEFAULT_PATH, **plain}


VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_ASSIGNMENT = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*")
_BLANK = re.compile(r"[ \t]*(?:#.*)?")
_UNQUOTED_END = re.compile(r"[ \t]#|[\r\n]|\Z")
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SINGLE_QUOTED = re.compile(r"'([^']*)'")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9_./:@%+,=~^&*?!\-]*")
_NEWLINE = re.compile(r"\r\n|\n|\r")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "$": "$", "`": "`"}


class Assignment(Struct, frozen=True):
    """One `NAME=value` with the offsets of the entry and of the value including quotes."""

    name: str
    value: str
    line: int
    start: int
    end: int
    value_start: int
    value_end: int


def parse_dotenv(text: str, source: str = ".env") -> list[Assignment]:
    """Every assignment in order. Raises `ConfigError` with the line that is invalid."""
    found: list[Assignment] = []
    at = 1 if text.startswith("\ufeff") else 0
    line = 1
    while at < len(text):
        stop = _line_end(text, at)
        if not _BLANK.fullmatch(text, at, stop):
            found.append(_assignment(text, at, line, source))
            stop = found[-1].end
        after = _newline_end(text, stop)
        line += len(_NEWLINE.findall(text, at, after))
        at = after
    return found


def read_dotenv(path: Path) -> dict[str, str]:
    """The variables of the file; empty if it does not exist."""
    text = read_text(path)
    return {entry.name: entry.value for entry in parse_dotenv(text, str(path))} if text else {}


def profile_env(path: Path, process: Env) -> Env:
    """A profile's variables: its own `.env` over those of the process."""
    return process.overlaid(read_dotenv(path))


def read_text(path: Path, errors: str = "strict") -> str:
    """The file as text, empty when missing. Raises `ConfigError` when it cannot be read."""
    try:
        return read_regular_file(path).decode(errors=errors)
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: byte {error.start} is not UTF-8 text",
            hint=f"Save it as UTF-8, or rename it: mv {path} {path}.old",
        ) from error
    except OSError as error:
        hint = f"Make it a file that you may read, or rename it: mv {path} {path}.old"
        raise file_error(error, f"{path} cannot be read: {error.strerror}", hint) from error


def with_variable(text: str, name: str, value: str, source: str = ".env") -> str:
    """Return the text with `name` set, in place or on a new line at the end."""
    if not VARIABLE_NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a valid variable name.",
            hint="Use letters, digits and underscores, not beginning with a digit.",
        )
    if "\0" in value:
        raise ConfigError(f"The value for {name} contains a null byte.")
    same = [entry for entry in parse_dotenv(text, source) if entry.name == name]
    if same:
        last = same[-1]
        return text[: last.value_start] + quote_value(value) + text[last.value_end :]
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = newline if text and not text.endswith(("\n", "\r", "\ufeff")) else ""
    return f"{text}{gap}{name}={quote_value(value)}{newline}"


def without_variable(text: str, name: str, source: str = ".env") -> str:
    """Return the text without lines that set `name`."""
    kept: list[str] = []
    at = 0
    for entry in parse_dotenv(text, source):
        if entry.name == name:
            kept.append(text[at : entry.start])
            at = _newline_end(text, entry.end)
    return "".join([*kept, text[at:]])


def quote_value(value: str) -> str:
    """Quote the value if necessary."""
    if _NEEDS_NO_QUOTES.fullmatch(value):
        return value
    if not re.search(r"['\r\n]", value):
        return f"'{value}'"
    escaped = re.sub(r'[\\"$`]', r"\\\g<0>", value).replace("\n", r"\n").replace("\r", r"\r")
    return f'"{escaped}"'


def _assignment(text: str, at: int, line: int, source: str) -> Assignment:
    head = _ASSIGNMENT.match(text, at)
    if head is None:
        has_sign = "=" in text[at : _line_end(text, at)]
        found = "the text before = is not a name" if has_sign else "there is no ="
        raise ConfigError(
            f"{source}, line {line}: expected NAME=value, but {found}",
            hint="Write NAME=value, or begin the line with # to make it a comment.",
        )
    name, begin = head[1], head.end()
    value, value_end = _value(text, begin, f"{source}, line {line}: the value of {name}")
    end = _line_end(text, value_end)
    if not _BLANK.fullmatch(text, value_end, end):
        raise ConfigError(
            f"{source}, line {line}: there is text after the closing quote of {name}",
            hint=r"Write \" for a quote inside double quotes, or remove what follows.",
        )
    return Assignment(name, value, line, at, end, begin, value_end)


def _value(text: str, at: int, what: str) -> tuple[str, int]:
    if text.startswith('"', at):
        if match := _DOUBLE_QUOTED.match(text, at):
            return _ESCAPE.sub(lambda m: _ESCAPES.get(m[1], m[0]), match[1]), match.end()
    elif text.startswith("'", at):
        if match := _SINGLE_QUOTED.match(text, at):
            return match[1], match.end()
    elif stop := _UNQUOTED_END.search(text, at):
        value = text[at : stop.start()].rstrip(" \t")
        is_comment = value.startswith("#") and text[at - 1] in " \t"
        return ("", at) if is_comment else (value, at + len(value))
    raise ConfigError(f"{what} has no closing quote", hint="Add the quote that ends the value.")


def _line_end(text: str, at: int) -> int:
    newline = _NEWLINE.search(text, at)
    return newline.start() if newline else len(text)


def _newline_end(text: str, at: int) -> int:
    newline = _NEWLINE.match(text, at)
    return newline.end() if newline else at
