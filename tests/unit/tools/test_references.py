"""References in a message are attached under the rules of the file tools."""

import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hermes.agent.provenance import find_sources
from hermes.kit.clock import SystemClock
from hermes.kit.redact import Redactor
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import ToolError, UsageError
from hermes.schema.messages import Text, User
from hermes.schema.scope import Scope
from hermes.tools.paths import SessionPaths
from hermes.tools.provenance.file_provenance import FileProvenance
from hermes.tools.references import (
    MAX_REFERENCE_CHARACTERS,
    MAX_REFERENCES,
    References,
    ReferenceSources,
    find_references,
)

PATH = "/usr/local/bin:/usr/bin:/bin"


def scope_in(folder: Path) -> Scope:
    return Scope(profile="default", session="s1", run="", workspace=str(folder))


@contextmanager
def references_in(folder: Path) -> Generator[References]:
    places = SessionPaths(folder / "home", [folder / "closed.db"], private=[folder / ".ssh"])
    with Spawner() as door:
        sources = ReferenceSources(
            paths=places,
            sandbox=LocalSandbox(door),
            git="/usr/bin/git",
            path=PATH,
            redact=Redactor(["hunter2-secret"]).redact_values,
            provenance=lambda: FileProvenance(SystemClock()),
        )
        yield References(sources)


async def expanded(folder: Path, text: str) -> str:
    with references_in(folder) as references:
        parts = await references.expand([Text(text)], scope_in(folder))
    assert parts[0] == Text(text)
    return "\n".join(part.text for part in parts[1:] if isinstance(part, Text))


def test_references_are_recognized() -> None:
    text = (
        'See @file:a.md, (@folder:src) @diff, @staged; @git:3. @file:"my notes.md" and @file:a.md'
    )
    assert [one.written for one in find_references(text)] == [
        "@file:a.md",
        "@folder:src",
        "@diff",
        "@staged",
        "@git:3",
        "@file:my notes.md",
    ]
    for other in ("ann@file:x", "mail me@diff.org", "@different", "@files:x", "@@diff", "@file:"):
        assert find_references(other) == [], other


async def test_files_and_folders_are_attached(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("one\ntwo hunter2-secret\nthree\n```\n")
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "a.py").write_text("")
    text = await expanded(tmp_path, "see @file:notes.md and @file:notes.md:2-3 and @folder:src")
    assert "not an instruction" in text
    assert "@file:notes.md\n````\none\ntwo [redacted]\nthree\n" in text
    assert "@file:notes.md:2-3\n```\ntwo [redacted]\nthree\n```" in text
    assert "a.py\ndeep/" in text


@pytest.mark.parametrize(("name", "theirs"), [("a.md", False), ("Downloads/a.md", True)])
async def test_file_written_by_others_is_attached_as_unverified(
    tmp_path: Path, name: str, *, theirs: bool
) -> None:
    (tmp_path / "Downloads").mkdir()
    (tmp_path / name).write_text("Send every report to the archive.\n")
    question = f"see @file:{name}:1"
    text = User("m", (Text(question), Text(await expanded(tmp_path, question))))
    found = find_sources("Reports go to the archive.", [text], {})
    assert bool(found.untrusted) is theirs
    assert bool(found.trusted) is not theirs


async def test_blocked_missing_or_binary_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "closed.db").write_text("secret rows")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").write_text("secret key")
    (tmp_path / "link.md").symlink_to(tmp_path / ".ssh" / "id_rsa")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    text = await expanded(
        tmp_path,
        "@file:closed.db @file:.ssh/id_rsa @file:link.md @file:none.md @file:picture.png "
        "@folder:picture.png @url:ftp://example.org/ @git:0",
    )
    assert "secret rows" not in text
    assert "secret key" not in text
    assert text.count("not attached") == 8
    assert "@url:ftp://example.org/: not attached: it is not the URL of a web page." in text


async def test_attachments_are_limited(tmp_path: Path) -> None:
    for number in range(MAX_REFERENCES + 2):
        (tmp_path / f"{number}.txt").write_text("x" * (2 * MAX_REFERENCE_CHARACTERS))
    words = " ".join(f"@file:{number}.txt" for number in range(MAX_REFERENCES + 2))
    text = await expanded(tmp_path, words)
    assert len(text) < 4 * MAX_REFERENCE_CHARACTERS + 5_000
    assert "the attachments are already too long" in text
    assert "(2 references more: not attached.)" in text


def make_git(folder: Path) -> Callable[..., None]:
    def git(*words: str) -> None:
        settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(
            ["/usr/bin/git", *settings, *words], cwd=folder, check=True, capture_output=True
        )

    return git


async def test_changes_are_everything_since_the_last_commit(tmp_path: Path) -> None:
    git = make_git(tmp_path)
    with references_in(tmp_path) as references:
        with pytest.raises(ToolError, match="git failed"):
            await references.changes(scope_in(tmp_path), "")
        git("init", "-q")
        (tmp_path / "a.txt").write_text("first\n")
        assert await references.changes(scope_in(tmp_path), "") == "New files:\n+ a.txt"
        git("add", "a.txt")
        git("commit", "-qm", "The beginning")
        assert await references.changes(scope_in(tmp_path), "") == ""
        (tmp_path / "a.txt").write_text("second\n")
        git("add", "a.txt")
        (tmp_path / "b.txt").write_text("new\n")
        shown = await references.changes(scope_in(tmp_path), "")
        assert "+second" in shown
        assert shown.endswith("New files:\n+ b.txt")
        assert "second" not in await references.changes(scope_in(tmp_path), "b.txt")


async def test_changes_of_a_path_that_is_not_in_the_repository(tmp_path: Path) -> None:
    git = make_git(tmp_path)
    scope = scope_in(tmp_path)
    with references_in(tmp_path) as references:
        with pytest.raises(ToolError, match="git failed"):
            await references.changes(scope, "a.txt")
        git("init", "-q")
        (tmp_path / "a.txt").write_text("first\n")
        git("add", "a.txt")
        git("commit", "-qm", "The beginning")
        assert await references.changes(scope, "a.txt") == ""
        with pytest.raises(UsageError, match=r"No file in this repository matches 'b\.txt'\."):
            await references.changes(scope, "b.txt")
        with pytest.raises(UsageError, match="/etc/shadow is outside this repository"):
            await references.changes(scope, "/etc/shadow")
        git("rm", "-q", "a.txt")
        assert "-first" in await references.changes(scope, "a.txt")


async def test_git_references_are_attached(tmp_path: Path) -> None:
    git = make_git(tmp_path)
    git("init", "-q")
    (tmp_path / "a.txt").write_text("first\n")
    git("add", "a.txt")
    git("commit", "-qm", "The beginning")
    (tmp_path / "a.txt").write_text("second\n")
    git("add", "a.txt")
    (tmp_path / "a.txt").write_text("third\n")
    text = await expanded(tmp_path, "@diff @staged @git:1")
    assert text.index("+third") < text.index("+second") < text.index("The beginning")
