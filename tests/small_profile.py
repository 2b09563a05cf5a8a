"""A profile of its own, opened as the program opens one, with tools that are called by hand."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Raw

from hermes.app.build import App, Choices, open_app
from hermes.config.env import Env
from hermes.config.home import DEFAULT, Home
from hermes.ports.counsel import Ruling, Wish
from hermes.ports.tool import Output, ToolContext
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
async def profile(root: Path, settings: str = "", name: str = DEFAULT) -> AsyncGenerator[App]:
    home, work = root / "home", root / "work"
    path = home if name == DEFAULT else home / "profiles" / name
    path.mkdir(parents=True)
    work.mkdir()
    (path / "config.yaml").write_text(settings)
    env = Env({**ENV, "HOME": str(root)})
    async with open_app(Home(home, path, name), env, Choices(workspace=str(work))) as app:
        yield app


def asking(root: Path, source: str = "cli", role: Role = Role.OWNER) -> Scope:
    return Scope("default", "s", "r", str(root / "work"), source=source, role=role)


async def call(app: App, scope: Scope, name: str, **args: object) -> Output:
    """One call of a tool of that platform, allowed whatever it asks for."""
    tool = app.toolbox.on(scope.source)[name]
    ctx = ToolContext(scope, "c", _silent, _yes)
    return await tool.run(Raw(msgspec.json.encode(args)), ctx)


def answered(output: Output) -> dict[str, object]:
    part = output.parts[0]
    assert isinstance(part, Text)
    return msgspec.json.decode(part.text, type=dict[str, object])


async def _silent(text: str) -> None:
    pass


async def _yes(wish: Wish) -> Ruling:
    return Ruling(allowed=True)
