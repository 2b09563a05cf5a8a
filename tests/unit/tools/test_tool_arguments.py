from typing import Annotated, Literal

import pytest
from inline_snapshot import snapshot
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from hermes.schema.errors import ToolError
from hermes.tools.tool_io import Arguments
from support.cases import cases


class Item(Struct, forbid_unknown_fields=True):
    id: str
    done: bool | UnsetType = UNSET


class Args(Struct, forbid_unknown_fields=True):
    """Not for the model."""

    path: str
    limit: Annotated[int, Meta(ge=1, le=9, description="Lines")] = 5
    mode: Literal["a", "b"] = "a"
    items: list[Item] | UnsetType = UNSET
    title: str = ""


ARGUMENTS = Arguments("probe", Args)


def test_schema_is_compact_and_keeps_parameters_named_like_keywords():
    assert ARGUMENTS.schema == snapshot(
        {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 9, "description": "Lines"},
                "mode": {"enum": ["a", "b"]},
                "items": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"id": {"type": "string"}, "done": {"type": "boolean"}},
                        "required": ["id"],
                    },
                },
                "title": {"type": "string"},
            },
            "required": ["path"],
        }
    )


def test_null_is_ignored_and_numbers_may_be_text():
    args = ARGUMENTS.decode(Raw(b'{"path":"x","limit":"7","mode":null,"items":null}'))
    assert args == Args("x", 7)


@cases(
    ("raw", "message"),
    [
        (b"{}", "the parameter `path` (text) is missing."),
        (b'{"path":null}', "the parameter `path` (text) is missing."),
        (
            b'{"path":"x","limit":10}',
            "`limit` must be a whole number from 1 to 9. Expected `int` <= 9 - at `$.limit`.",
        ),
        (
            b'{"path":"x","mode":"c"}',
            "`mode` must be one of a, b. Invalid enum value 'c' - at `$.mode`.",
        ),
        (
            b'{"path":["x"]}',
            "`path` must be text. Expected `str`, got `array` - at `$.path`.",
        ),
        (
            b'{"path":"x","items":[{"done":true}]}',
            "`items` must be of type array. Object missing required field `id` - at `$.items[0]`.",
        ),
        (
            b'{"path":"x","pth":1}',
            "unknown parameter `pth`. Known: path, limit, mode, items, title.",
        ),
        (b"[1]", "the arguments must be a JSON object."),
    ],
)
def test_invalid_arguments_are_explained(raw: bytes, message: str):
    with pytest.raises(ToolError) as caught:
        ARGUMENTS.decode(Raw(raw))
    assert str(caught.value) == f"probe: {message}"
