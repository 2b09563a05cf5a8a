from pathlib import Path

import anyio
import pytest
from inline_snapshot import snapshot

from hermes.schema.errors import ToolError
from hermes.tools.files.drafts import MAX_LINES


async def test_exact_replacement(call, workspace: Path):
    path = workspace / "a.py"
    path.write_text("def f():\n    return 1\n\n\nprint(f())\n")
    answer = await call("patch", path="a.py", old_string="return 1", new_string="return 2")
    assert path.read_text() == "def f():\n    return 2\n\n\nprint(f())\n"
    diff = "--- a/a.py\n+++ b/a.py\n@@ -1,5 +1,5 @@\n def f():\n"
    diff += "-    return 1\n+    return 2\n \n \n print(f())"
    assert answer.json == {
        "success": True,
        "diff": diff,
        "files_modified": [str(path)],
        "lint": {"status": "ok", "output": ""},
        "resolved_path": str(path),
        "strategy": "exact",
    }
    assert answer.output.shown == diff


async def test_several_matches_are_an_error_without_replace_all(call, workspace: Path):
    path = workspace / "f"
    path.write_text("x = 1\ny = 1\n")
    with pytest.raises(ToolError, match=r"occurs 2 times in .*/f \(lines 1, 2\)"):
        await call("patch", path="f", old_string="= 1", new_string="= 2")
    answer = await call("patch", path="f", old_string="= 1", new_string="= 2", replace_all=True)
    assert path.read_text() == "x = 2\ny = 2\n"
    assert answer["replacements"] == 2


async def test_overlapping_matches_count_separately(call, workspace: Path):
    (workspace / "f").write_text("aaa")
    with pytest.raises(ToolError, match="2 times"):
        await call("patch", path="f", old_string="aa", new_string="b")


async def test_missing_text_shows_the_nearest_lines(call, workspace: Path):
    (workspace / "f").write_text("import os\n\ndef greet(name):\n    print(name)\n")
    with pytest.raises(ToolError) as caught:
        await call("patch", path="f", old_string="def greet(nam):\n    print(nam)", new_string="x")
    assert str(caught.value).endswith("nearest lines are:\n3|def greet(name):\n4|    print(name)")
    with pytest.raises(ToolError, match="is not in"):
        await call("patch", path="f", old_string="zzzzzzzzzzzzzz", new_string="x")


@pytest.mark.parametrize(
    ("before", "old", "new", "after", "strategy"),
    [
        pytest.param(
            "a  \nb\t\nc\n",
            "a\nb\n",
            "x\ny\n",
            "x\ny\nc\n",
            "trailing whitespace ignored",
            id="trailing",
        ),
        pytest.param(
            "class A:\n    def f(self):\n        return 1\n",
            "def f(self):\n    return 1",
            "def f(self):\n    if x:\n        return 2\n    return 1",
            "class A:\n    def f(self):\n        if x:\n            return 2\n        return 1\n",
            "indentation adjusted",
            id="deeper in the file",
        ),
        pytest.param(
            "if a:\n  b()\n",
            "      if a:\n        b()\n",
            "      if a:\n        c()\n    d()\n",
            "if a:\n  c()\nd()\n",
            "indentation adjusted",
            id="deeper in the edit",
        ),
        pytest.param(
            "def f():\n\treturn 1\n",
            "def f():\n    return 1\n",
            "def f():\n    if x:\n        pass\n",
            "def f():\n\tif x:\n\t    pass\n",
            "indentation adjusted",
            id="tabs",
        ),
        pytest.param(
            "say \u201chello\u201d \u2014 now\n",
            'say "hello" - now',
            'say "bye"',
            'say "bye"\n',
            "quotes and dashes normalized",
            id="quotes",
        ),
        pytest.param(
            "start\n  one thing here\n  another thing\nend\nrest\n",
            "start\n  one thing there\n  another thing\nend\n",
            "gone\n",
            "gone\nrest\n",
            "first and last line matched",
            id="anchors",
        ),
    ],
)
async def test_match_strategies(call, workspace: Path, before, old, new, after, strategy):
    (workspace / "f").write_text(before)
    answer = await call("patch", path="f", old_string=old, new_string=new)
    assert (workspace / "f").read_text() == after
    assert answer["strategy"] == strategy


async def test_ambiguous_loose_match_is_refused(call, workspace: Path):
    text = "  a()\n  b()\n    a()\n    b()\n"
    (workspace / "f").write_text(text)
    with pytest.raises(ToolError, match="2 times"):
        await call("patch", path="f", old_string="a()\nb()", new_string="c()")
    assert (workspace / "f").read_text() == text


async def test_line_ends_are_kept(call, workspace: Path):
    path = workspace / "dos"
    path.write_bytes(b"one\r\ntwo\r\nthree")
    await call("patch", path="dos", old_string="one\ntwo", new_string="1\n2")
    assert path.read_bytes() == b"1\r\n2\r\nthree"
    await call("patch", path="dos", old_string="three", new_string="3\n4")
    assert path.read_bytes() == b"1\r\n2\r\n3\r\n4"
    path.write_bytes(b"a\nb\r\nc\r\nd\r\n")
    await call("patch", path="dos", old_string="a\nb\nc", new_string="x")
    assert path.read_bytes() == b"x\r\nd\r\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"old_string": "a", "new_string": "b"}, "`path` .* is missing"),
        ({"path": "f", "new_string": "b"}, "`old_string` .* is missing"),
        ({"path": "f", "old_string": "a", "new_string": "a"}, "are the same"),
        ({"path": "none", "old_string": "a", "new_string": "b"}, "does not exist"),
        ({"path": "bin", "old_string": "a", "new_string": "b"}, "binary file"),
        ({"path": "~/.hermes/.env", "old_string": "a", "new_string": "b"}, "belongs to Hermes"),
        ({"path": "f", "old_string": "\n \n", "new_string": "b"}, "is not in"),
    ],
)
async def test_failed_replacement_is_explained(call, workspace: Path, args, message: str):
    (workspace / "f").write_text("abc")
    (workspace / "bin").write_bytes(b"a\0")
    with pytest.raises(ToolError, match=message):
        await call("patch", **args)


async def test_change_by_another_program_is_kept_with_a_warning(call, workspace: Path):
    path = workspace / "f"
    path.write_text("one\ntwo\n")
    await call("read_file", path="f")
    path.write_text("one\ntwo\nthree by somebody\n")
    answer = await call("patch", path="f", old_string="one", new_string="1")
    assert "Changed elsewhere" in answer["warning"]
    assert path.read_text() == "1\ntwo\nthree by somebody\n"
    assert "warning" not in (await call("patch", path="f", old_string="two", new_string="2")).json


async def test_patch_of_several_files(call, workspace: Path):
    (workspace / "a.py").write_text("def f():\n    return 1\n\n\ndef g():\n    return 1\n")
    (workspace / "old.txt").write_text("bye\n")
    (workspace / "move.txt").write_text("x\ny")
    patch = """*** Begin Patch
*** Update File: a.py
@@ def g():
-    return 1
+    return 2
*** Add File: new/b.json
+{"a": 1}
*** Delete File: old.txt
*** Update File: move.txt
*** Move to: moved.txt
@@
 x
-y
+z
*** End Patch"""
    answer = await call("patch", mode="patch", patch=patch)
    assert (
        workspace / "a.py"
    ).read_text() == "def f():\n    return 1\n\n\ndef g():\n    return 2\n"
    assert (workspace / "new/b.json").read_text() == '{"a": 1}\n'
    assert not (workspace / "old.txt").exists()
    assert not (workspace / "move.txt").exists()
    assert (workspace / "moved.txt").read_text() == "x\nz"
    names = [Path(path).name for path in answer["files_modified"]]
    assert names == ["a.py", "b.json", "old.txt", "move.txt", "moved.txt"]
    assert answer["lint"]["status"] == "ok"
    assert answer["diff"] == snapshot(
        """\
--- a/a.py
+++ b/a.py
@@ -3,4 +3,4 @@
 \n\
 \n\
 def g():
-    return 1
+    return 2
--- /dev/null
+++ b/new/b.json
@@ -0,0 +1 @@
+{"a": 1}
--- a/old.txt
+++ /dev/null
@@ -1 +0,0 @@
-bye
--- a/move.txt
+++ /dev/null
@@ -1,2 +0,0 @@
-x
-y
--- /dev/null
+++ b/moved.txt
@@ -0,0 +1,2 @@
+x
+z\
"""
    )


async def test_bad_hunk_changes_nothing(call, workspace: Path):
    (workspace / "a").write_text("one\n")
    (workspace / "b").write_text("two\n")
    patch = (
        "*** Begin Patch\n*** Update File: a\n-one\n+1\n*** Add File: c\n+new\n"
        "*** Update File: b\n-three\n+3\n*** End Patch"
    )
    with pytest.raises(ToolError, match="b, hunk 1: these lines are not in the file"):
        await call("patch", mode="patch", patch=patch)
    assert (workspace / "a").read_text() == "one\n"
    assert not (workspace / "c").exists()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "no file named"),
        ("hello", "line 2: expected `\\*\\*\\* Update File:`"),
        ("*** Update File: a\nno prefix", "line 3 begins with neither"),
        ("*** Update File: a\n@@\n", "changes nothing"),
        ("*** Update File:\n-x", "needs a path"),
        ("*** Update File: a\n-same\n+other", "occur 2 times \\(lines 1, 3\\)"),
        ("*** Update File: a\n@@ class Nope\n-same\n+other", "heading 'class Nope'"),
        ("*** Update File: none\n-x\n+y", "does not exist"),
        ("*** Add File: a\n+x", "already exists"),
        ("*** Add File: c\nx", "begin with '\\+'"),
        ("*** Delete File: none", "does not exist"),
        ("*** Delete File: ~/.hermes/.env", "belongs to Hermes"),
        ("*** Update File: a\n*** Move to: b\n", "already exists"),
        ("*** Update File: a\n same\n", "occur 2 times"),
    ],
)
async def test_invalid_patch_is_explained(call, workspace: Path, body: str, message: str):
    (workspace / "a").write_text("same\nx\nsame\n")
    (workspace / "b").write_text("b\n")
    with pytest.raises(ToolError, match=message):
        await call("patch", mode="patch", patch=f"*** Begin Patch\n{body}\n*** End Patch")
    assert (workspace / "a").read_text() == "same\nx\nsame\n"


async def test_patch_needs_begin_and_end(call):
    with pytest.raises(ToolError, match="between `\\*\\*\\* Begin Patch`"):
        await call("patch", mode="patch", patch="*** Update File: a\n-x\n+y")


async def test_file_named_twice_is_edited_twice(call, workspace: Path):
    (workspace / "a").write_text("1\n2\n")
    patch = (
        "*** Begin Patch\n*** Update File: a\n-1\n+one\n"
        "*** Update File: a\n one\n-2\n+two\n*** End Patch"
    )
    await call("patch", mode="patch", patch=patch)
    assert (workspace / "a").read_text() == "one\ntwo\n"


async def test_file_with_too_many_lines_is_refused(call, workspace: Path):
    (workspace / "many").write_text("\n" * (MAX_LINES + 1))
    with pytest.raises(ToolError, match="more than 300,000 lines"):
        await call("patch", path="many", old_string="x", new_string="y")
    answer = await call("write_file", path="many", content="\n" * 600_000)
    assert answer["bytes_written"] == 600_000
    assert "lines became 600,000" in answer.output.shown


@pytest.mark.slow
@pytest.mark.parametrize("old", ["a\n" * 100_000 + "b\n", "a\n" * 2_000 + " a\n"])
async def test_equal_lines_are_searched_in_reasonable_time(call, workspace: Path, old: str):
    """Searched line by line, this took quadratic time."""
    (workspace / "f").write_text("a\n" * 120_000)
    with anyio.fail_after(60), pytest.raises(ToolError, match=r"is not in|times"):
        await call("patch", path="f", old_string=old, new_string="y")
    body = "".join(f" {line}\n" for line in old.splitlines())
    envelope = f"*** Begin Patch\n*** Update File: f\n{body}+x\n*** End Patch"
    with anyio.fail_after(60), pytest.raises(ToolError, match=r"not in the file|places"):
        await call("patch", mode="patch", patch=envelope)


@pytest.mark.slow
async def test_expensive_comparison_gives_up(call, workspace: Path):
    """Many blocks have the wanted first and last lines and are almost similar enough."""
    blocks = (f"begin\n{'ab' * 180}\n{'a' * (n % 20)}b\nend\n" for n in range(800))
    (workspace / "f").write_text("".join(blocks))
    question = f"begin\n{'a' * 100}\n{'a' * 180 + 'b' * 110}\nend"
    with anyio.fail_after(60), pytest.raises(ToolError):
        await call("patch", path="f", old_string=question, new_string="y")


@pytest.mark.slow
async def test_huge_line_has_no_nearest_lines(call, workspace: Path):
    (workspace / "f").write_text("ab" * 5_000_000)
    with anyio.fail_after(60), pytest.raises(ToolError, match="is not in"):
        await call("patch", path="f", old_string="ba" * 200_000 + "c", new_string="y")


async def test_cancelled_search_is_abandoned(call, workspace: Path):
    """The caller does not wait for a long comparison."""
    (workspace / "f").write_text("x\n")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await call("patch", path="f", old_string="x", new_string="y")
    assert scope.cancelled_caught
    assert (workspace / "f").read_text() == "x\n"


async def test_too_many_hunks_are_refused(call, workspace: Path):
    (workspace / "f").write_text("".join(f"{n}\n" for n in range(50_000)))
    hunks = "".join(f"@@\n {n}\n+x\n" for n in range(500))
    with pytest.raises(ToolError, match="500 hunks for 50,000 lines"):
        await call(
            "patch",
            mode="patch",
            patch=f"*** Begin Patch\n*** Update File: f\n{hunks}*** End Patch",
        )


async def test_overlong_patch_is_refused(call):
    with pytest.raises(ToolError, match="more than 5,000,000 characters"):
        await call("patch", path="f", old_string="x" * 5_000_001, new_string="y")


async def test_moved_file_keeps_its_permissions(call, workspace: Path):
    (workspace / "run").write_text("one\n")
    (workspace / "run").chmod(0o755)
    moving = "*** Update File: run\n*** Move to: bin/go\n@@\n-one\n+two"
    patch = f"*** Begin Patch\n{moving}\n*** End Patch"
    await call("patch", patch=patch)
    assert (workspace / "bin" / "go").read_text() == "two\n"
    assert (workspace / "bin" / "go").stat().st_mode & 0o777 == 0o755
    assert not (workspace / "run").exists()
