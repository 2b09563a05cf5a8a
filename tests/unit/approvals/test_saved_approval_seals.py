"""Saved approvals lapse when the files they cover change."""

from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.approvals.saved_approvals import (
    can_be_saved,
    covers,
    make_saved_approval,
    simple_argv,
)
from hermes.approvals.seals import SealContext, command_seal, unsealable_program
from hermes.ports.approval_records import AddSavedApproval, SavedApproval
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.schema.questions import ApprovalChoice
from hermes.schema.scope import OWNER
from support.approvals import (
    OWNER_ANSWERER,
    SCOPE,
    ApprovalHarness,
    PendingApproval,
    answer_request,
)

UNATTENDED = structs.replace(SCOPE, attended=False)


def outside_request(
    action: str, folder: Path, reaching: Isolation = Isolation.BEYOND
) -> ApprovalRequest:
    return ApprovalRequest(  # noqa: S604 - not a subprocess argument
        tool="terminal", action=action, reaching=reaching, shell=True, folder=str(folder)
    )


@pytest.mark.parametrize("reaching", [Isolation.BEYOND, Isolation.NETWORK])
@pytest.mark.parametrize("choice", [ApprovalChoice.SESSION, ApprovalChoice.ALWAYS])
@pytest.mark.parametrize(
    "action", ["sh s.sh", "./s.sh", "sudo -n sh ./s.sh", "curl --config=s.sh x", "curl -d @s.sh x"]
)
async def test_rewritten_script_needs_approval_again(
    harness: ApprovalHarness,
    tmp_path: Path,
    action: str,
    choice: ApprovalChoice,
    reaching: Isolation,
) -> None:
    script = tmp_path / "s.sh"
    script.write_text("echo good")
    script.chmod(0o755)
    request = outside_request(action, tmp_path, reaching)
    assert (await answer_request(harness, choice, request=request)).allowed
    assert "lapse if the files it names change" in harness.questions[0].text
    assert (await harness.decide(request, UNATTENDED)).allowed
    script.write_text("echo evil")
    assert not (await harness.decide(request, UNATTENDED)).allowed
    script.write_text("echo good")
    assert (await harness.decide(request, UNATTENDED)).allowed


async def test_file_created_later_needs_approval_again(
    harness: ApprovalHarness, tmp_path: Path
) -> None:
    request = outside_request("sh s.sh", tmp_path)
    assert (await answer_request(harness, ApprovalChoice.ALWAYS, request=request)).allowed
    assert (await harness.decide(request, UNATTENDED)).allowed
    (tmp_path / "s.sh").write_text("echo evil")
    assert not (await harness.decide(request, UNATTENDED)).allowed


async def test_unsandboxed_grant_is_sealed_once_untrusted_content_is_read(
    harness: ApprovalHarness, tmp_path: Path
) -> None:
    script = tmp_path / "s.sh"
    script.write_text("echo good")
    request = structs.replace(outside_request("sh s.sh", tmp_path, Isolation.OPEN), foreign=True)
    assert (await answer_request(harness, ApprovalChoice.ALWAYS, request=request)).allowed
    assert (await harness.decide(request, UNATTENDED)).allowed
    script.write_text("echo evil")
    assert not (await harness.decide(request, UNATTENDED)).allowed


async def test_file_changed_while_asking_denies_the_request(
    harness: ApprovalHarness, tmp_path: Path
) -> None:
    script = tmp_path / "s.sh"
    script.write_text("echo good")
    pending = PendingApproval(harness, outside_request("sh s.sh", tmp_path))
    async with anyio.create_task_group() as group:
        group.start_soon(pending.run)
        await harness.wait_for_question()
        script.write_text("echo evil")
        await harness.service.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)
    assert pending.decision is not None
    assert not pending.decision.allowed
    assert "changed while" in pending.decision.why


@pytest.mark.parametrize("action", ["make deploy", "sh s.sh"])
async def test_old_grants_without_a_seal_do_not_apply(
    harness: ApprovalHarness, tmp_path: Path, action: str
) -> None:
    (tmp_path / "s.sh").write_text("echo good")
    request = outside_request(action, tmp_path)
    old = SavedApproval(
        id="grant_old",
        tool="terminal",
        reaching=Isolation.BEYOND,
        argv=simple_argv(action) or (),
        folder=str(tmp_path),
        asked_by=OWNER,
        answered_by=OWNER,
    )
    await harness.store.commit(AddSavedApproval(old))
    assert not (await harness.decide(request, UNATTENDED)).allowed


@pytest.mark.parametrize(
    "action",
    ["make deploy", "npm run build", "pnpm test", "yarn x", "pytest -q", "cargo test", "tox", "nox",
     "just x", "./gradlew build", "mvn verify", "python3 -m tools.deploy", "python3.12 s.py",
     "node x.js", ".venv/bin/python s.py", "env -i make", "timeout 5 pytest", "uv run x",
     "sh -c 'cat x'", "bash -lc 'ls'", "su -c 'make x'", "find . -exec sh x", "pip install .",
     "docker build .", "xargs -a list sh"],
)  # fmt: skip
@pytest.mark.parametrize("reaching", [Isolation.BEYOND, Isolation.NETWORK])
async def test_programs_that_run_project_files_are_allowed_once_only(
    harness: ApprovalHarness, tmp_path: Path, action: str, reaching: Isolation
) -> None:
    request = outside_request(action, tmp_path, reaching)
    assert (await answer_request(harness, ApprovalChoice.ALWAYS, request=request)).allowed
    (question,) = harness.questions
    assert question.choices == ("once", "deny")
    assert "Once only: " in question.text
    assert await harness.service.saved_approvals() == []
    assert not covers(make_saved_approval(request, "g", session="", by=OWNER), request)


@pytest.mark.parametrize("first", ["#!/usr/bin/env python3", "#!/usr/bin/env -S node", "#!/x/perl"])
async def test_script_that_loads_other_files_is_allowed_once_only(
    harness: ApprovalHarness, tmp_path: Path, first: str
) -> None:
    (tmp_path / "deploy").write_text(f"{first}\nimport helper\n")
    request = outside_request("./deploy now", tmp_path)
    assert (await answer_request(harness, ApprovalChoice.ALWAYS, request=request)).allowed
    assert harness.questions[0].choices == ("once", "deny")
    assert "Once only: " in harness.questions[0].text
    assert await harness.service.saved_approvals() == []


@pytest.mark.parametrize(
    "action", ["git push", "curl https://a.example", "ls -la", "sh s.sh", "pip install requests",
               "gh pr list", "docker ps", "rm -rf build"]
)  # fmt: skip
def test_self_contained_commands_can_be_saved(tmp_path: Path, action: str) -> None:
    assert can_be_saved(outside_request(action, tmp_path))
    assert not unsealable_program(simple_argv(action) or ())


def test_runners_can_be_saved_without_sandbox_escape(tmp_path: Path) -> None:
    assert can_be_saved(outside_request("make test", tmp_path, Isolation.OPEN))


def test_replaced_program_changes_the_seal(tmp_path: Path) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    context = SealContext(folder=str(tmp_path), workspace=str(tmp_path), path="bin:/usr/bin:/bin")
    assert command_seal(("env", "x"), context) == ""
    program = bin_folder / "env"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    first = command_seal(("env", "x"), context)
    program.write_text("#!/bin/sh\nevil\n")
    assert len({"", first, command_seal(("env", "x"), context)}) == 3


def test_symlink_target_is_part_of_the_seal(tmp_path: Path) -> None:
    context = SealContext(folder=str(tmp_path), workspace=str(tmp_path))
    link = tmp_path / "tool"
    link.symlink_to("/bin/true")
    first = command_seal(("./tool",), context)
    link.unlink()
    link.symlink_to("/bin/sh")
    assert len({"", first, command_seal(("./tool",), context)}) == 3


def test_large_file_is_sealed_by_its_metadata(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(40 * 1024 * 1024)
    context = SealContext(folder=str(tmp_path))
    first = command_seal(("x", "large"), context)
    assert first == command_seal(("x", "large"), context) != ""
    with large.open("ab") as file:
        file.write(b"x")
    assert command_seal(("x", "large"), context) not in {"", first}
