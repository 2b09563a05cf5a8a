"""Ask a person before a call of a small model deletes or overwrites files."""

import re
from pathlib import Path

import msgspec
from msgspec import Raw, Struct, structs

from hermes.ports.approvals import ApprovalRequest, Decision
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.tools.catalog import ToolWrapper

_WHY = "Small models often do this by mistake."
_START = r"(?:^|[;&|(`\n]|\$\(|\b(?:sudo|xargs|exec|command|then|do|-exec)\s)\s*"
_DELETES = re.compile(
    _START + r"(?:\S*/)?(?:rm|rmdir|unlink|shred|truncate|dd)\s|\s-delete\b"
    r"|\bgit\s+(?:checkout|clean|restore|stash|rm|reset\s+--hard)\b",
    re.MULTILINE,
)
_REPLACES = re.compile(
    _START + r"(?:\S*/)?(?:mv|cp|install|ln)\s+(?P<words>[^;&|\n]+)", re.MULTILINE
)
_REDIRECTS = re.compile(r"(?<![>&\d])\d?>\|?\s*(?P<name>[^\s;&|<>]+)")
_TEES = re.compile(r"\|\s*tee\s+(?!-a\b|--append\b)(?P<name>[^\s;&|<>]+)")


class _Arguments(Struct, frozen=True):
    path: str = ""
    command: str = ""
    workdir: str = ""


class CautiousTool(ToolWrapper):
    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        try:
            arguments = msgspec.json.decode(args, type=_Arguments)
        except msgspec.DecodeError:
            return await super().run(args, ctx)
        workspace = Path(ctx.scope.workspace)
        reason = destructive_reason(self.spec.name, arguments, workspace)
        if not reason:
            return await super().run(args, ctx)
        return await super().run(args, _with_caution(ctx, f"It {reason}. {_WHY}"))


def destructive_reason(tool: str, arguments: _Arguments, workspace: Path) -> str:
    """Return what a call deletes or overwrites, to complete a sentence; empty if nothing."""
    if tool == "write_file" and arguments.path:
        exists = Path(workspace, arguments.path).is_file()
        return f"overwrites {arguments.path}" if exists else ""
    if not arguments.command:
        return ""
    if _DELETES.search(arguments.command):
        return "deletes or discards files"
    folder = workspace / arguments.workdir
    names = [
        found["name"] for find in (_REDIRECTS, _TEES) for found in find.finditer(arguments.command)
    ]
    names += [found["words"].split()[-1] for found in _REPLACES.finditer(arguments.command)]
    for name in names:
        path = Path(folder, name.strip("'\""))
        if path.is_file():
            return f"overwrites {name}"
    return ""


def _with_caution(ctx: ToolContext, caution: str) -> ToolContext:
    """The tool asks for approval before its effect; the question then gives this reason."""

    async def request_approval(request: ApprovalRequest) -> Decision:
        return await ctx.request_approval(structs.replace(request, caution=caution))

    return structs.replace(ctx, request_approval=request_approval)
