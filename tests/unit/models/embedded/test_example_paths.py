"""Example paths that a small model makes up."""

from msgspec import Raw

from hermes.models.embedded.wire import has_no_such_path, replace_example_paths
from hermes.schema.messages import Text, User
from support.cases import cases


@cases(
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
def test_example_path_is_replaced(written: str, meant: str) -> None:
    assert bytes(replace_example_paths(Raw(written.encode()))).decode() == meant


@cases(
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
def test_other_paths_are_unchanged(written: str) -> None:
    assert bytes(replace_example_paths(Raw(written.encode()))).decode() == written


def test_path_from_the_user_is_kept() -> None:
    assert has_no_such_path([User("u", (Text("What is in this folder?"),))])
    assert not has_no_such_path([User("u", (Text("What is in /path/to/music?"),))])
