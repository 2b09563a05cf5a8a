"""Paths that a small model has only from examples."""

import pytest
from msgspec import Raw

from hermes.models.embedded.wire import has_no_such_path, replace_example_paths
from hermes.schema.messages import Text, User


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('{"path": "/path/to/folder"}', '{"path": "."}'),
        ('{"path": "/path/to/your_folder/"}', '{"path": "."}'),
        ('{"path": "/path/to"}', '{"path": "."}'),
        ('{"path": "path/to/a.txt"}', '{"path": "a.txt"}'),
        ('{"path": "/path/to/this-directory"}', '{"path": "."}'),
        ('{"path": "/path/to/note.txt", "content": "é"}', '{"path": "note.txt", "content": "é"}'),
        ('{"path": "/path/to/ideas/a.txt"}', '{"path": "ideas/a.txt"}'),
        ('{"command": "ls -a /path/to/folder | wc -l"}', '{"command": "ls -a . | wc -l"}'),
        ('{"command": "mv /path/to/a \'/path/to/b\'"}', '{"command": "mv a \'b\'"}'),
    ],
)
def test_an_example_is_a_name_here(written: str, meant: str) -> None:
    assert bytes(replace_example_paths(Raw(written.encode()))).decode() == meant


@pytest.mark.parametrize(
    "written",
    [
        '{"path":"a.txt"}',
        '{"path": "/srv/path/to/a.txt"}',
        '{"path": "/path/tomorrow.txt"}',
        '{"path": "a.txt", "content": "see /path/to/b"}',
        '{"path": "/path/to/a.t',
        "[]",
    ],
)
def test_everything_else_stays(written: str) -> None:
    assert bytes(replace_example_paths(Raw(written.encode()))).decode() == written


def test_a_path_that_was_spoken_of_is_real() -> None:
    assert has_no_such_path([User("u", (Text("What is in this folder?"),))])
    assert not has_no_such_path([User("u", (Text("What is in /path/to/music?"),))])
