"""The built-in tools: one registration each.

Their specs come from `specs.json`, so the code of a tool is imported at its first call.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path

import msgspec
from msgspec import Raw, Struct, structs

from hermes.kit.text import did_you_mean
from hermes.ports.checkpoints import Checkpoint, Checkpoints, RestoreResult
from hermes.ports.tool import SupportsRestore, Tool, ToolContext, ToolOutput
from hermes.schema.errors import ToolError, UsageError
from hermes.schema.messages import Message, Text
from hermes.schema.scope import Scope
from hermes.schema.tools import ToolSpec
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.tool_io import earlier_results

SPECS_FILE = Path(__file__).with_name("specs.json")


class LazyTool(Struct):
    """Imports the actual tool at its first use."""

    spec: ToolSpec
    _make: Callable[[], Tool]
    _tool: Tool | None = None

    @property
    def tool(self) -> Tool:
        if self._tool is None:
            self._tool = self._make()
        return self._tool

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        return await self.tool.run(args, ctx)

    def restore(self, session: str, messages: Sequence[Message]) -> None:
        """Skip loading a tool that the session never used."""
        if self._tool is None and next(earlier_results(self.spec.name, messages), None) is None:
            return
        if isinstance(self.tool, SupportsRestore):
            self.tool.restore(session, messages)


@cache
def load_specs() -> Mapping[str, ToolSpec]:
    """Read the tool specs written by `scripts/specs.py`, in the order of their registration."""
    return msgspec.json.decode(SPECS_FILE.read_bytes(), type=dict[str, ToolSpec])


def encode_specs(tools: Mapping[str, Tool]) -> bytes:
    specs = {name: tool.spec for name, tool in tools.items()}
    return msgspec.json.format(msgspec.json.encode(specs), indent=1) + b"\n"


class ToolWrapper:
    """Forwards to another tool; subclasses change its calls."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        return await self._tool.run(args, ctx)

    def restore(self, session: str, messages: Sequence[Message]) -> None:
        if isinstance(self._tool, SupportsRestore):
            self._tool.restore(session, messages)


class RedactedTool(ToolWrapper):
    """Redacts the output and errors of tools that quote files."""

    def __init__(self, tool: Tool, redact: Callable[[str], str]) -> None:
        super().__init__(tool)
        self._redact = redact

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        try:
            output = await super().run(args, ctx)
        except ToolError as error:
            raise ToolError(self._redact(str(error)), hint=self._redact(error.hint)) from None
        parts = tuple(
            Text(self._redact(part.text)) if isinstance(part, Text) else part
            for part in output.parts
        )
        return structs.replace(output, parts=parts, shown=self._redact(output.shown))


class LazyCheckpoints:
    """Imports the code of the checkpoints at their first use."""

    def __init__(self, make: Callable[[], Checkpoints]) -> None:
        self._make = make
        self._made: Checkpoints | None = None

    @property
    def _checkpoints(self) -> Checkpoints:
        if self._made is None:
            self._made = self._make()
        return self._made

    async def checkpoint_before(self, scope: Scope, args: Raw) -> str:
        return await self._checkpoints.checkpoint_before(scope, args)

    async def changed(self, run: str) -> bool | None:
        return await self._checkpoints.changed(run)

    async def take(self, workspace: str, session: str, reason: str = "") -> Checkpoint:
        return await self._checkpoints.take(workspace, session, reason)

    async def list(self, workspace: str) -> Sequence[Checkpoint]:
        return await self._checkpoints.list(workspace)

    async def restore(self, checkpoint: Checkpoint, session: str) -> RestoreResult:
        return await self._checkpoints.restore(checkpoint, session)


class CheckpointedTool(ToolWrapper):
    def __init__(self, tool: Tool, checkpoints: Checkpoints) -> None:
        super().__init__(tool)
        self._checkpoints = checkpoints

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        if problem := await self._checkpoints.checkpoint_before(ctx.scope, args):
            await ctx.progress(problem)
        return await super().run(args, ctx)


OPTIONAL = frozenset({"kanban"})
"""Toolsets that are enabled only if named. Workers on a board always get `kanban`."""


class Toolsets:
    """The basic toolsets, which the tools' specs name, and composites of them.

    `all` has every tool, `hermes-cli` all but the optional toolsets, and `hermes-api-server` those
    of them that ask no questions. `safe` has no tools.
    """

    def __init__(self, specs: Mapping[str, ToolSpec]) -> None:
        named = dict.fromkeys(spec.toolset for spec in specs.values())
        self.single: Mapping[str, Sequence[str]] = {
            toolset: tuple(name for name, spec in specs.items() if spec.toolset == toolset)
            for toolset in named
        }
        common = tuple(name for name in named if name not in OPTIONAL)
        asking = {spec.toolset for spec in specs.values() if spec.asks}
        self.composites: Mapping[str, Sequence[str]] = {
            "all": tuple(named),
            "coding": ("terminal", "file", "todo", "code_execution"),
            "debugging": ("terminal", "file"),
            "hermes-cli": common,
            "hermes-api-server": tuple(name for name in common if name not in asking),
            "safe": (),
        }
        self.names = sorted({*self.single, *self.composites})

    def tools_of(self, names: Iterable[str]) -> list[str]:
        """Return the tools of several toolsets without duplicates. Raises `UsageError`."""
        tools: dict[str, None] = {}
        for name in names:
            for plain in self.composites.get(name, (name,)):
                if plain not in self.single:
                    near = did_you_mean(name, self.names)
                    hint = near or f"Known toolsets: {', '.join(self.names)}."
                    raise UsageError(f"Unknown toolset: {name!r}.", hint=hint)
                tools.update(dict.fromkeys(self.single[plain]))
        return list(tools)


@cache
def built_in_toolsets() -> Toolsets:
    return Toolsets(load_specs())


def known_toolsets() -> list[str]:
    return built_in_toolsets().names


def tools_of(names: Iterable[str]) -> list[str]:
    """Return the built-in tools of several toolsets. Raises `UsageError`."""
    return built_in_toolsets().tools_of(names)


class Registration(Struct, frozen=True):
    """A tool and the function that builds it.

    - `build`: `module:function`, called with the collaborators at the first call of the tool.
    - `feature`: the feature that registers the tool, instead of `build`.
    - `needs`: the collaborator without which there is no such tool.
    """

    name: str
    build: str = ""
    needs: str = ""
    feature: str = ""


BUILT_IN: Sequence[Registration] = (
    Registration("terminal", "hermes.tools.terminal.tool:build_terminal"),
    Registration("process", "hermes.tools.processes.tool:build_process", needs="processes"),
    Registration("read_file", "hermes.tools.files.read:build_read_file"),
    Registration("write_file", "hermes.tools.files.write:build_write_file"),
    Registration("patch", "hermes.tools.files.patch:build_patch"),
    Registration("search_files", "hermes.tools.search.tool:build_search_files"),
    Registration("execute_code", "hermes.tools.code.tool:build_execute_code", needs="python"),
    Registration(
        "delegate_task", "hermes.tools.delegate_task:build_delegate_task", needs="delegator"
    ),
    Registration("todo", "hermes.tools.todo:build_todo"),
    Registration("clarify", "hermes.tools.clarify:build_clarify"),
    Registration(
        "send_message", "hermes.tools.send_message:build_send_message", needs="message_sender"
    ),
    Registration("cronjob", needs="features", feature="cron"),
    Registration("memory", "hermes.tools.memory:build_memory", needs="learning"),
    Registration("skills_list", "hermes.tools.skills:build_skills_list", needs="learning"),
    Registration("skill_view", "hermes.tools.skills:build_skill_view", needs="learning"),
    Registration("skill_manage", "hermes.tools.skills:build_skill_manage", needs="learning"),
    Registration(
        "session_search", "hermes.tools.session_search:build_session_search", needs="store"
    ),
    *(
        Registration(f"kanban_{name}", needs="features", feature="kanban")
        for name in (
            "show",
            "list",
            "complete",
            "block",
            "heartbeat",
            "comment",
            "create",
            "link",
            "unblock",
            "attach",
            "attach_url",
            "attachments",
            "request_review",
            "request_changes",
        )
    ),
)
"""In the order in which they are listed to the model."""


def list_tools(
    collaborators: Callable[[], ToolCollaborators],
    registered: Sequence[Registration] = BUILT_IN,
    specs: Mapping[str, ToolSpec] | None = None,
) -> dict[str, Tool]:
    """Return tools by name, in order; `collaborators` is called at the first call of one."""
    known = load_specs() if specs is None else specs
    return {
        one.name: LazyTool(known[one.name], partial(_load, one, collaborators))
        for one in registered
    }


def build_tools(
    deps: ToolCollaborators,
    registered: Sequence[Registration] = BUILT_IN,
    specs: Mapping[str, ToolSpec] | None = None,
) -> dict[str, Tool]:
    """Return the tools whose collaborators are given."""
    own = structs.replace(deps)
    return list_tools(lambda: own, _available(deps, registered), specs)


def load_all_tools(
    deps: ToolCollaborators, registered: Sequence[Registration] = BUILT_IN
) -> dict[str, Tool]:
    """Return the tools with their code loaded; `specs.json` is generated from them."""
    return {one.name: _load(one, lambda: deps) for one in _available(deps, registered)}


def _available(
    deps: ToolCollaborators, registered: Sequence[Registration]
) -> Sequence[Registration]:
    return [one for one in registered if not one.needs or getattr(deps, one.needs) is not None]


def _load(one: Registration, collaborators: Callable[[], ToolCollaborators]) -> Tool:
    deps = collaborators()
    if one.feature:
        from hermes.tools.feature_tool import build_feature_tool  # noqa: PLC0415 - rarely needed

        tool = build_feature_tool(one.feature, one.name, deps)
    else:
        module, _, function = one.build.partition(":")
        tool: Tool = getattr(import_module(module), function)(deps)
    if deps.checkpoints is not None and tool.spec.changes_files:
        return CheckpointedTool(tool, deps.checkpoints)
    return tool
