"""JSON results of tools are formatted for reading."""

from hermes.kit.readable_result import readable_result
from support.cases import cases


@cases(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("[not json", "[not json"),
        ('{"output": "one\\ntwo", "exit_code": 0, "error": null}', "one\ntwo\nexit_code: 0"),
        ('{"error": "no such file", "files": []}', "no such file"),
        ('{"todos": [{"content": "wash up", "done": true}]}', "todos:\n  - wash up\n    done: yes"),
        ('{"a": {"b": "c"}, "lines": "x\\ny"}', "a: b: c\nlines:\n  x\n  y"),
        ("{}", "(nothing)"),
        ("[1, 2]", "- 1\n- 2"),
    ],
)
def test_json_result_is_formatted_as_lines(text: str, shown: str) -> None:
    assert readable_result(text) == shown


def test_deeply_nested_json_is_unchanged() -> None:
    deep = "[" * 5_000
    assert readable_result(deep) == deep
