"""Calls of small models that delete or overwrite files ask a person first."""

from pathlib import Path

import msgspec
import pytest
from msgspec import Raw, structs

from hermes.approvals.policy import (
    Allowed,
    ApprovalMode,
    ApprovalRules,
    NeedsApproval,
    StandingApprovals,
    apply_policy,
)
from hermes.ports.approvals import ApprovalRequest, Decision, Isolation
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.tools.cautious_tool import CautiousTool
from support.app_profile import make_scope, open_profile


@pytest.mark.parametrize(
    ("tool", "args", "asks"),
    [
        ("terminal", {"command": "rm test_calc.py"}, True),
        ("terminal", {"command": "ls && rm -f x"}, True),
        ("terminal", {"command": "find . -name '*.py' -delete"}, True),
        ("terminal", {"command": "git checkout ."}, True),
        ("terminal", {"command": "echo x > calc.py"}, True),
        ("terminal", {"command": "mv other calc.py"}, True),
        ("terminal", {"command": "echo x >> calc.py"}, False),
        ("terminal", {"command": "echo x > new.py"}, False),
        ("terminal", {"command": "grep -rn rm . 2>/dev/null"}, False),
        ("terminal", {"command": "mv calc.py renamed.py"}, False),
        ("write_file", {"path": "calc.py", "content": "y"}, True),
        ("write_file", {"path": "new.py", "content": "y"}, False),
        ("patch", {"path": "calc.py", "old_string": "x", "new_string": "y"}, False),
    ],
)
async def test_destructive_call_asks(
    tmp_path: Path, tool: str, args: dict[str, str], asks: bool
) -> None:
    cautions: list[str] = []

    async def decide(request: ApprovalRequest) -> Decision:
        cautions.append(request.caution)
        return Decision(allowed=not request.caution, why="Not allowed.")

    async def ignore(text: str) -> None:
        pass

    async with open_profile(tmp_path, "terminal: {backend: local}\n") as app:
        (tmp_path / "work" / "calc.py").write_text("x")
        (tmp_path / "work" / "test_calc.py").write_text("x")
        cautious = CautiousTool(app.toolbox.tools_on("cli")[tool])
        ctx = ToolContext(make_scope(tmp_path), "c", ignore, decide)
        try:
            await cautious.run(Raw(msgspec.json.encode(args)), ctx)
        except ToolError:
            assert asks
    assert any(cautions) is asks
    assert (tmp_path / "work" / "test_calc.py").exists()


REQUEST = ApprovalRequest(
    tool="write_file", action="a", reaching=Isolation.INSIDE, caution="It deletes files."
)


def test_caution_asks_a_person_even_in_the_sandbox(tmp_path: Path) -> None:
    scope, standing = structs.replace(make_scope(tmp_path), attended=True), StandingApprovals()
    verdict = apply_policy(ApprovalRules(), REQUEST, scope, standing)
    assert verdict == NeedsApproval(why="It deletes files.", smart=False, owner_only=False)
    open_request = structs.replace(REQUEST, reaching=Isolation.OPEN, action="rm a")
    verdict = apply_policy(ApprovalRules(), open_request, scope, standing)
    assert isinstance(verdict, NeedsApproval)
    assert not verdict.smart, "the small model must not decide for itself"
    for free in (ApprovalRules(yolo=True), ApprovalRules(mode=ApprovalMode.OFF)):
        assert apply_policy(free, REQUEST, scope, standing) == Allowed()
    assert apply_policy(ApprovalRules(), structs.replace(REQUEST, caution=""), scope, standing) == (
        Allowed()
    )
