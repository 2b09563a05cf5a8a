"""Real tools in a real sandbox, each test with its own workspace."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from hermes.kit.redact import Redactor
from hermes.ports.tool import Tool, ToolContext, ToolOutput
from hermes.sandbox.child_env import EnvRules, child_env
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.messages import Text
from hermes.schema.scope import Scope
from hermes.store.blobs import FileBlobs
from hermes.testing.clock import FakeClock
from hermes.tools.catalog import build_tools
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.search.ripgrep import find_rg
from hermes.tools.terminal.shell import find_shell

SECRET = "canary-4711-secret"
PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture
def secret() -> str:
    return SECRET


@pytest.fixture(scope="session")
def sandbox() -> Iterator[LocalSandbox]:
    with Spawner(grace=0.2) as door:
        yield LocalSandbox(door)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def scope(workspace: Path) -> Scope:
    return Scope("default", "session-1", "run-1", str(workspace))


@pytest.fixture
def deps(sandbox: LocalSandbox, tmp_path: Path) -> ToolCollaborators:
    process = {"PATH": PATH, "HOME": str(tmp_path), "API_KEY": SECRET}
    return ToolCollaborators(
        sandbox=sandbox,
        blobs=FileBlobs(tmp_path / "blobs"),
        clock=FakeClock(),
        env=lambda scope: child_env(EnvRules(process=process), scope),
        redact=Redactor([SECRET]).redact,
        home=tmp_path,
        spill_folder=tmp_path / "spilled",
        shell=find_shell(PATH),
        rg=find_rg(PATH),
        protected=[tmp_path / ".hermes" / ".env", tmp_path / ".hermes" / "state.db*"],
    )


@pytest.fixture
def tools(deps: ToolCollaborators) -> dict[str, Tool]:
    return build_tools(deps)


class Answer:
    """A result's JSON, and the tool's output."""

    def __init__(self, output: ToolOutput) -> None:
        self.output = output
        first = output.parts[0]
        assert isinstance(first, Text)
        self.json: dict[str, Any] = msgspec.json.decode(first.text)

    def __getitem__(self, key: str) -> Any:
        return self.json[key]


Call = Callable[..., Awaitable[Answer]]


@pytest.fixture
def call(tools: dict[str, Tool], scope: Scope) -> Call:
    """`await call("read_file", path="a")`; `scope_` and `progress_` change the context."""

    async def run(name: str, **args: Any) -> Answer:
        progress_texts: list[str] = args.pop("progress_", [])

        async def progress(text: str) -> None:
            progress_texts.append(text)

        ctx = ToolContext(args.pop("scope_", scope), "call-1", progress)
        return Answer(await tools[name].run(Raw(msgspec.json.encode(args)), ctx))

    return run
