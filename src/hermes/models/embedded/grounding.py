"""Paths that a small model knows from examples only, taken as names in the folder it is in.

It writes `/path/to/note.txt` where it means `note.txt`, and `/path/to/folder` where it means here.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from hermes.schema.messages import Message, User, text_of

EXAMPLE = "path/to"
_HERE = re.compile(r"((this|the|your|my|current|working)[_-]?)?(folder|directory|dir)?/?")
_PATH = re.compile(r"(?<![\w./~-])/?path/to(?:/(?P<rest>[^\s\"'|&;<>]*))?(?![\w-])")


def is_example(messages: Sequence[Message]) -> bool:
    """Whether such a path can only be made up: nobody spoke of one."""
    return not any(isinstance(one, User) and EXAMPLE in text_of(one) for one in messages)


def grounded(args: Raw) -> Raw:
    """The same bytes, unless a path or a command in them names such a place."""
    if EXAMPLE.encode() not in bytes(args):
        return args
    try:
        values = msgspec.json.decode(args, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return args
    for name in ("path", "command"):
        if isinstance(value := values.get(name), str):
            values[name] = _PATH.sub(_meant, value)
    return Raw(json.dumps(values, ensure_ascii=False).encode())


def _meant(found: re.Match[str]) -> str:
    rest = (found["rest"] or "").lstrip("/")
    return "." if _HERE.fullmatch(rest) else rest
