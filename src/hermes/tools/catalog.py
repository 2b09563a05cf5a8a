"""The built-in tools: one registration each.

Their specs come from `specs.json`, so the code of a tool is imported at its first call.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module

from msgspec import Struct, structs

from hermes.ports.checkpoints import Checkpoints
from hermes.ports.tool import Tool
from hermes.schema.tools import ToolSpec
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.tool_wrappers import CheckpointedTool, LazyTool, load_specs


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
    checkpoints: Checkpoints | None = None,
) -> dict[str, Tool]:
    """Return tools by name, in order; `collaborators` is called at the first call of one."""
    known = load_specs() if specs is None else specs
    tools: dict[str, Tool] = {}
    for one in registered:
        tool: Tool = LazyTool(known[one.name], partial(_load, one, collaborators))
        if checkpoints is not None and tool.spec.changes_files:
            tool = CheckpointedTool(tool, checkpoints)
        tools[one.name] = tool
    return tools


def build_tools(
    given: ToolCollaborators,
    registered: Sequence[Registration] = BUILT_IN,
    specs: Mapping[str, ToolSpec] | None = None,
) -> dict[str, Tool]:
    """Return the tools whose collaborators are given."""
    own = structs.replace(given)
    return list_tools(lambda: own, _available(given, registered), specs, given.checkpoints)


def load_all_tools(
    given: ToolCollaborators, registered: Sequence[Registration] = BUILT_IN
) -> dict[str, Tool]:
    """Return the tools with their code loaded; `specs.json` is generated from them."""
    return {one.name: _load(one, lambda: given) for one in _available(given, registered)}


def _available(
    given: ToolCollaborators, registered: Sequence[Registration]
) -> Sequence[Registration]:
    return [one for one in registered if not one.needs or getattr(given, one.needs) is not None]


def _load(one: Registration, collaborators: Callable[[], ToolCollaborators]) -> Tool:
    if one.feature:
        from hermes.tools.feature_tool import build_feature_tool  # noqa: PLC0415 - few are called

        return build_feature_tool(one.feature, one.name, collaborators())
    module, _, function = one.build.partition(":")
    return getattr(import_module(module), function)(collaborators())
