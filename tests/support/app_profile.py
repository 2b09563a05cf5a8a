"""Open a real profile and call its tools directly."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Raw

from hermes.app.build import App, AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import DEFAULT_PROFILE, Home
from hermes.ports.approvals import ApprovalRequest, Decision
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.messages import Text
from hermes.schema.scope import Role, Scope

ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "OPENAI_API_KEY": "sk-nothing",
    "HERMES_INFERENCE_PROVIDER": "openai",
    "HERMES_INFERENCE_MODEL": "mock",
}


@asynccontextmanager
async def open_profile(
    root: Path,
    settings: str = "",
    name: str = DEFAULT_PROFILE,
    env: Mapping[str, str] | None = None,
) -> AsyncGenerator[App]:
    home, work = root / "home", root / "work"
    path = home if name == DEFAULT_PROFILE else home / "profiles" / name
    path.mkdir(parents=True)
    work.mkdir()
    (path / "config.yaml").write_text(settings)
    variables = Env({**ENV, "HOME": str(root), **(env or {})})
    async with open_app(Home(home, path, name), variables, AppOptions(workspace=str(work))) as app:
        yield app


def make_scope(root: Path, source: str = "cli", role: Role = Role.OWNER) -> Scope:
    return Scope("default", "s", "r", str(root / "work"), source=source, role=role)


async def call_tool(app: App, scope: Scope, name: str, /, **args: object) -> ToolOutput:
    """Call a tool of the scope's platform, with every approval granted."""
    tool = app.toolbox.tools_on(scope.source)[name]
    ctx = ToolContext(scope, "c", ignore_progress, _always_allow)
    return await tool.run(Raw(msgspec.json.encode(args)), ctx)


def output_json(output: ToolOutput) -> dict[str, object]:
    part = output.parts[0]
    assert isinstance(part, Text)
    return msgspec.json.decode(part.text, type=dict[str, object])


async def ignore_progress(text: str) -> None:
    pass


async def _always_allow(request: ApprovalRequest) -> Decision:
    return Decision(allowed=True)
