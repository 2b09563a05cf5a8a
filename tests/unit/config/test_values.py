import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.config.values import format_path, parse_path
from hermes.kit.errors import UsageError
from support.cases import cases

keys = st.text(min_size=1, max_size=8)
paths = st.tuples(keys, st.lists(st.one_of(keys, st.integers(0, 99)), max_size=4)).map(
    lambda parts: (parts[0], *parts[1])
)


@cases(
    ("text", "path"),
    [
        ("model", ("model",)),
        ("agent.max_turns", ("agent", "max_turns")),
        ("list[0].name", ("list", 0, "name")),
        ("list.0.name", ("list", 0, "name")),
        ('providers."a.b".model', ("providers", "a.b", "model")),
        ("mcp_servers.my-server.args[1]", ("mcp_servers", "my-server", "args", 1)),
        ("a[0][1]", ("a", 0, 1)),
    ],
)
def test_supported_forms_of_a_value(text, path):
    assert parse_path(text) == path


@cases("text", ["", ".", "a.", ".a", "a..b", "[0]", "a[", "a[x]", "a[0]b", "a.[0]"])
def test_invalid_paths_are_refused(text):
    with pytest.raises(UsageError, match="not the name of a setting"):
        parse_path(text)


@given(paths)
def test_every_path_survives_writing_and_reading(path):
    assert parse_path(format_path(path)) == path
