"""With the user's home as workspace, commands and file tools follow the same rule."""

from pathlib import Path

import msgspec
import pytest
from msgspec import Raw, structs

from hermes.ports.approvals import ApprovalRequest, Decision, Isolation
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from support.app_profile import call_tool, make_scope, open_profile, output_json

EXECUTED_FILES = ("msgspec.py", "msgspec/__init__.py", "go/bin/gopls", "go/bin/new", ".bashrc")
WRITABLE_FILES = ("notes/a.txt", "go/src/main.go", "notes/deep/er.txt")


async def test_executed_files_are_not_written_by_commands_or_tools(tmp_path: Path) -> None:
    for name in ("notes/deep", "go/bin", "go/src"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "go/bin/gopls").write_text("mine")
    requests: list[ApprovalRequest] = []

    async def ask(request: ApprovalRequest) -> Decision:
        requests.append(request)
        return Decision(allowed=request.reaching is Isolation.INSIDE)

    async def silent(text: str) -> None:
        pass

    async with open_profile(tmp_path) as app:
        scope = structs.replace(make_scope(tmp_path), workspace=str(tmp_path))
        write = app.toolbox.tools_on(scope.source)["write_file"]
        context = ToolContext(scope, "c", silent, ask)
        for name in (*EXECUTED_FILES, *WRITABLE_FILES):
            command = f"mkdir -p $(dirname {name}) && echo x > {name}"
            done = output_json(await call_tool(app, scope, "terminal", command=command))
            assert (done["exit_code"] == 0) == (name in WRITABLE_FILES), name
            args = Raw(msgspec.json.encode({"path": name, "content": "y"}))
            if name in WRITABLE_FILES:
                await write.run(args, context)
            else:
                with pytest.raises(ToolError, match="existing folders of"):
                    await write.run(args, context)
            beyond = Isolation.INSIDE if name in WRITABLE_FILES else Isolation.BEYOND
            assert requests[-1].reaching is beyond, name
    assert (tmp_path / "go/bin/gopls").read_text() == "mine"
    assert not (tmp_path / "msgspec.py").exists()
