import os
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from inline_snapshot import snapshot
from msgspec import Raw

from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.scope import Scope
from hermes.tools.catalog import build_tools
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.search.ripgrep import (
    MAX_RECORD,
    CountCollector,
    HitCollector,
    Match,
    NameCollector,
    PageRange,
    RecordReader,
    find_rg,
)


@pytest.fixture(autouse=True)
def tree(workspace: Path) -> None:
    files = {
        "src/a.py": "import os\n\ndef f():\n    return os.name\n",
        "src/b.ts": "import x\n",
        "src/deep/c.py": "x = 1\nimport re\n",
        "build/out.py": "import ignored\n",
        "notes.log": "import ignored\n",
        ".github/ci.yml": "import: hidden\n",
        ".gitignore": "build/\n*.log\n",
        ".git/config": "import = never\n",
    }
    for name, text in files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)


async def test_matching_lines_are_listed(call):
    answer = await call("search_files", pattern=r"^import \w")
    assert answer.json == snapshot(
        {
            "total_count": 3,
            "matches": [
                {"path": "src/a.py", "line": 1, "content": "import os"},
                {"path": "src/b.ts", "line": 1, "content": "import x"},
                {"path": "src/deep/c.py", "line": 2, "content": "import re"},
            ],
        }
    )


async def test_context_lines_are_included(call):
    answer = await call("search_files", pattern="def f", context=1, file_glob="*.py")
    assert answer.json == snapshot(
        {
            "total_count": 1,
            "matches": [
                {"path": "src/a.py", "line": 2, "content": "", "match": False},
                {"path": "src/a.py", "line": 3, "content": "def f():"},
                {"path": "src/a.py", "line": 4, "content": "    return os.name", "match": False},
            ],
        }
    )


async def test_pages_continue_at_the_offset(call):
    first = await call("search_files", pattern="import", limit=2)
    assert [hit["path"] for hit in first["matches"]] == [".github/ci.yml", "src/a.py"]
    assert (first["truncated"], first["note"]) == (True, "Continue with offset=2.")
    second = await call("search_files", pattern="import", limit=2, offset=2)
    assert [hit["path"] for hit in second["matches"]] == ["src/b.ts", "src/deep/c.py"]
    assert "truncated" not in second.json


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"output_mode": "files_only"}, {"total_count": 2, "files": ["src/a.py", "src/deep/c.py"]}),
        (
            {"output_mode": "count", "pattern": "o"},
            {"total_count": 3, "counts": {"src/a.py": 2, "src/deep/c.py": 1}},
        ),
        ({"path": "src/deep"}, None),
        ({"path": "src/deep/c.py"}, None),
        ({"path": "~/work/src/deep"}, None),
    ],
)
async def test_output_modes_and_paths(call, args, expected):
    answer = await call("search_files", **{"pattern": "import", "file_glob": "*.py", **args})
    if expected is None:
        expected = {
            "total_count": 1,
            "matches": [{"path": "src/deep/c.py", "line": 2, "content": "import re"}],
        }
    assert answer.json == expected


@pytest.mark.parametrize(
    ("args", "files"),
    [
        ({"pattern": "*.py"}, ["src/a.py", "src/deep/c.py"]),
        ({"pattern": "c.p"}, ["src/deep/c.py"]),
        ({"pattern": "*.{ts,yml}"}, [".github/ci.yml", "src/b.ts"]),
        ({"pattern": "src/*.py"}, ["src/a.py"]),
        ({"pattern": "*", "file_glob": "*.ts"}, ["src/b.ts"]),
        ({"pattern": "*.log"}, []),
        ({"pattern": "nothing"}, []),
    ],
)
async def test_files_are_found_by_name(call, args, files: list[str]):
    answer = await call("search_files", target="files", **args)
    assert answer.json == {"total_count": len(files), "files": files}


async def test_search_starts_in_the_working_folder(call):
    await call("terminal", command="cd src")
    answer = await call("search_files", pattern="*.py", target="files")
    assert answer["files"] == ["a.py", "deep/c.py"]


async def test_no_match_returns_an_empty_result(call):
    assert (await call("search_files", pattern="zzz")).json == {"total_count": 0, "matches": []}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"pattern": "("}, "unclosed group"),
        ({"pattern": ""}, "`pattern` is empty"),
        ({"pattern": "x", "path": "scr"}, "does not exist. Did you mean .*/src"),
        ({"pattern": "x", "file_glob": "[a"}, "glob"),
        ({"pattern": "x{", "target": "files"}, "glob"),
        ({"pattern": "x", "target": "files", "file_glob": "."}, "matches nothing"),
        ({"pattern": "x", "path": "~/.hermes/.env"}, "belongs to Hermes"),
    ],
)
async def test_invalid_arguments_are_explained(call, args, message: str):
    with pytest.raises(ToolError, match=message):
        await call("search_files", **args)


async def test_pattern_is_never_parsed_as_an_option(call, workspace: Path):
    (workspace / "odd").write_text("--files\n")
    answer = await call("search_files", pattern="--files")
    assert answer["matches"] == [{"path": "odd", "line": 1, "content": "--files"}]


async def test_protected_files_are_not_searched(call, workspace: Path, tmp_path: Path, secret: str):
    (tmp_path / ".hermes").mkdir()
    (tmp_path / ".hermes" / ".env").write_text("needle=1\n")
    os.link(tmp_path / ".hermes" / ".env", workspace / "copy")
    (workspace / "mine").write_text(f"needle={secret}\n")
    answer = await call("search_files", pattern="needle", path="~")
    found = {"path": f"{workspace}/mine", "line": 1, "content": "needle=[redacted]"}
    assert answer["matches"] == [found]
    answer = await call("search_files", pattern=".env", target="files", path="~")
    assert answer["files"] == []


async def test_long_line_is_shortened_around_its_match(call, workspace: Path):
    (workspace / "min.js").write_text("a" * 5_000 + "needle" + "b" * 5_000)
    (hit,) = (await call("search_files", pattern="needle"))["matches"]
    assert len(hit["content"]) == 502
    assert "needle" in hit["content"]


async def test_counting_stops_at_a_limit(call, workspace: Path):
    (workspace / "many").write_text("x\n" * 60_000)
    answer = await call("search_files", pattern="x", path="many", limit=3)
    assert len(answer["matches"]) == 3
    assert 20_000 <= answer["total_count"] < 60_000
    assert answer["note"].startswith("Stopped counting here; there are more.")


async def test_missing_ripgrep_suggests_alternatives(deps: ToolCollaborators, scope: Scope):
    tool = build_tools(msgspec.structs.replace(deps, rg=None))["search_files"]

    async def progress(_: str) -> None:
        raise AssertionError

    with pytest.raises(ToolError, match="not installed") as caught:
        await tool.run(Raw(b'{"pattern":"x"}'), ToolContext(scope, "c", progress))
    assert "grep" in caught.value.hint


def test_ripgrep_is_found():
    found = find_rg("/nowhere")
    assert found is not None
    assert Path(found).name == "rg"


def test_records_are_decoded_from_any_chunks():
    begin = b'{"type":"begin","data":{"path":{"text":"f"}}}\n'
    line = (
        b'{"type":"match","data":{"path":{"text":"f"},"lines":{"text":"x\\n"},"line_number":3}}\n'
    )
    # Some versions write the fields of the last record in another order.
    data = begin + b"rg: bad: Permission denied\n" + line + b'{"data":{},"type":"summary"}\n'
    for size in (1, 7, len(data)):
        records = RecordReader()
        seen = [r for at in range(0, len(data), size) for r in records.feed(data[at : at + size])]
        assert [type(record).__name__ for record in seen] == ["Begin", "Match", "Totals"]
        assert records.errors == "rg: bad: Permission denied\n"


def test_overlong_record_takes_bounded_memory():
    records = RecordReader()
    seen = list(records.feed(b'{"type":"begin","data":{"path":{"text":"f"}}}\n'))
    seen += records.feed(b'{"type":"match","data":{"path":{"text":"f"},"lines":{"text":"')
    for _ in range(5):
        seen += records.feed(b"x" * MAX_RECORD)
    seen += records.feed(b'"},"line_number":3}}\n{"type":"end","data":{}}\n')
    assert [type(record).__name__ for record in seen] == ["Begin", "Match", "End"]
    assert isinstance(seen[1], Match)
    assert (str(seen[1].data.path), str(seen[1].data.lines)) == ("f", "[a line too long to show]")


def test_page_of_hits_is_limited_in_characters():
    hits = HitCollector(PageRange(0, 500), lambda _: True, 0, str)
    record = {"path": {"text": "f"}, "lines": {"text": "y" * 500}, "line_number": 1}
    for _ in range(500):
        hits.feed(msgspec.json.encode({"type": "match", "data": record}) + b"\n")
    assert hits.total == 500
    assert 100 < hits.shown < 130


def test_names_and_counts_are_paged():
    names = NameCollector(PageRange(1, 1), lambda _: True)
    names.feed(b"./a\0b")
    names.feed(b"\0c\0rg: complaint")
    assert (names.names, names.total, names.shown) == (["b"], 3, 1)
    counts = CountCollector(PageRange(1, 5), lambda path: path != "secret")
    for path in ("a", "secret", "b", "b"):
        data = {"path": {"text": path}, "lines": {"text": "x"}, "line_number": 1}
        counts.feed(msgspec.json.encode({"type": "match", "data": data}) + b"\n")
    assert (counts.page(), counts.total, counts.matched) == ({"b": 2}, 2, 3)


@pytest.mark.parametrize("at", [0, 140, 150, 340, 345, 350, 490, 2_000])
async def test_excerpts_of_a_long_line_never_show_part_of_a_secret(
    call, workspace: Path, secret: str, at: int
):
    (workspace / "min.js").write_text(f"{'a' * at}{secret}{'b' * 2_000}needle{'c' * 2_000}\n")
    for pattern in ("needle", "b", "cccc$", "a+", "b+", "y-47", "cret"):
        for hit in (await call("search_files", pattern=pattern))["matches"]:
            halves = hit["content"].replace("[redacted]", "")
            assert not any(secret[n : n + 6] in halves for n in range(len(secret) - 5))


async def test_context_lines_are_redacted_before_they_are_cut(call, workspace: Path, secret: str):
    (workspace / "min.js").write_text(f"{'a' * 490}{secret}{'b' * 900}\nneedle\n")
    near, _ = (await call("search_files", pattern="needle", context=1))["matches"]
    assert near["content"] == f"{'a' * 490}[redacted]…"


async def test_line_that_is_not_utf8_is_redacted_and_shown(call, workspace: Path, secret: str):
    (workspace / "old.txt").write_bytes(b"gr\xfcn needle " + secret.encode() + b"\n")
    (hit,) = (await call("search_files", pattern="needle"))["matches"]
    assert hit["content"] == "gr\ufffdn needle [redacted]"


async def test_hard_link_with_undecodable_name_reveals_no_secret(
    call, workspace: Path, tmp_path: Path
):
    (tmp_path / ".hermes").mkdir()
    (tmp_path / ".hermes" / ".env").write_text("needle=1\n")
    os.link(tmp_path / ".hermes" / ".env", os.fsencode(workspace) + b"/cop\xff")
    for mode in ("content", "count", "files_only"):
        answer = await call("search_files", pattern="needle", output_mode=mode)
        assert answer["total_count"] == 0
    assert (await call("search_files", pattern="cop*", target="files"))["files"] == []


@pytest.mark.slow
async def test_line_of_80_megabytes_takes_little_memory(call, workspace: Path):
    with (workspace / "huge").open("wb") as file:
        for _ in range(80):
            file.write(b"x" * (1 << 20))
        file.write(b"needle\nneedle\n")
    tracemalloc.start()
    answer = await call("search_files", pattern="needle", path="huge")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [hit["content"] for hit in answer["matches"]] == ["[a line too long to show]", "needle"]
    assert most < 16 << 20


def test_error_message_inside_a_record_loses_only_that_record():
    line = b'{"type":"match","data":{"path":{"text":"f"},"lines":{"text":"x"}}}\n'
    records = RecordReader()
    seen = list(records.feed(line[:20] + b"rg: bad: Permission denied\n" + line[20:] + line))
    assert [type(record) for record in seen] == [Match]


@pytest.mark.parametrize("path", ["x" * 256, "x/" * 3_000, "nowhere/" + "é" * 200])
async def test_impossible_path_is_refused(call, path: str):
    for tool, args in (
        ("search_files", {"pattern": "x"}),
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("patch", {"old_string": "x", "new_string": "y"}),
    ):
        with pytest.raises(ToolError, match="too long"):
            await call(tool, path=path, **args)
    with pytest.raises(ToolError, match="too long"):
        await call("terminal", command="true", workdir=path)
