"""What a tool answered in JSON is shown as a person reads it."""

import pytest

from hermes.cli.verbs.sessions.transcript import readable_result


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("plain words", "plain words"),
        ("[not json", "[not json"),
        ('{"output": "one\\ntwo", "exit_code": 0, "error": null}', "one\ntwo\nexit_code: 0"),
        ('{"error": "no such file", "files": []}', "no such file"),
        ('{"todos": [{"content": "wash up", "done": true}]}', "todos:\n  - wash up\n    done: yes"),
        ('{"a": {"b": "c"}, "lines": "x\\ny"}', "a: b: c\nlines:\n  x\n  y"),
        ("{}", "(nothing)"),
        ("[1, 2]", "- 1\n- 2"),
    ],
)
def test_json_is_told_in_lines(words: str, shown: str) -> None:
    assert readable_result(words) == shown


def test_what_is_nested_without_end_stays_as_it_is() -> None:
    deep = "[" * 5_000
    assert readable_result(deep) == deep
