"""Leave for later is for what was there when it was given, not for what others put there since."""

from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.approvals.approval_store import ApprovalStore
from hermes.approvals.grants import Grant, can_be_saved, make_grant, simple_argv
from hermes.approvals.seals import SealContext, command_seal, unsealable_program
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

pytestmark = pytest.mark.anyio
ALONE = structs.replace(SCOPE, attended=False)


def far(action: str, folder: Path, reaching: Isolation = Isolation.BEYOND) -> ApprovalRequest:
    return ApprovalRequest(  # noqa: S604 - a word of our own
        tool="terminal", action=action, reaching=reaching, shell=True, folder=str(folder)
    )


@pytest.mark.parametrize("reaching", [Isolation.BEYOND, Isolation.NETWORK])
@pytest.mark.parametrize("choice", [ApprovalChoice.SESSION, ApprovalChoice.ALWAYS])
@pytest.mark.parametrize(
    "action", ["sh s.sh", "./s.sh", "sudo -n sh ./s.sh", "curl --config=s.sh x", "curl -d @s.sh x"]
)
async def test_a_rewritten_script_is_asked_for_again(
    house: ApprovalHarness, tmp_path: Path, action: str, choice: ApprovalChoice, reaching: Isolation
) -> None:
    script = tmp_path / "s.sh"
    script.write_text("echo good")
    script.chmod(0o755)
    wish = far(action, tmp_path, reaching)
    assert (await answer_request(house, choice, wish=wish)).allowed
    assert "while the files it names stay as they are" in house.questions[0].text
    assert (await house.rule(wish, ALONE)).allowed
    script.write_text("echo evil")
    assert not (await house.rule(wish, ALONE)).allowed
    script.write_text("echo good")
    assert (await house.rule(wish, ALONE)).allowed


async def test_a_file_that_came_later_is_asked_for(house: ApprovalHarness, tmp_path: Path) -> None:
    wish = far("sh s.sh", tmp_path)
    assert (await answer_request(house, ApprovalChoice.ALWAYS, wish=wish)).allowed
    assert (await house.rule(wish, ALONE)).allowed
    (tmp_path / "s.sh").write_text("echo evil")
    assert not (await house.rule(wish, ALONE)).allowed


async def test_without_a_wall_it_counts_once_strangers_are_heard(
    house: ApprovalHarness, tmp_path: Path
) -> None:
    script = tmp_path / "s.sh"
    script.write_text("echo good")
    wish = structs.replace(far("sh s.sh", tmp_path, Isolation.OPEN), foreign=True)
    assert (await answer_request(house, ApprovalChoice.ALWAYS, wish=wish)).allowed
    assert (await house.rule(wish, ALONE)).allowed
    script.write_text("echo evil")
    assert not (await house.rule(wish, ALONE)).allowed


async def test_what_changes_while_somebody_is_asked_is_not_done(
    house: ApprovalHarness, tmp_path: Path
) -> None:
    script = tmp_path / "s.sh"
    script.write_text("echo good")
    under_way = PendingApproval(house, far("sh s.sh", tmp_path))
    async with anyio.create_task_group() as group:
        group.start_soon(under_way.run)
        await house.asked()
        script.write_text("echo evil")
        await house.desk.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)
    assert under_way.decision is not None
    assert not under_way.decision.allowed
    assert "changed while" in under_way.decision.why


@pytest.mark.parametrize("action", ["make deploy", "sh s.sh"])
async def test_grants_of_old_that_bind_nothing_are_asked_for_again(
    house: ApprovalHarness, tmp_path: Path, action: str
) -> None:
    (tmp_path / "s.sh").write_text("echo good")
    wish = far(action, tmp_path)
    old = Grant(
        id="grant_old",
        tool="terminal",
        reaching=Isolation.BEYOND,
        argv=simple_argv(action) or (),
        folder=str(tmp_path),
        by=OWNER,
        answered_by=OWNER,
    )
    await house.store.commit(ApprovalStore(house.store, house.clock, "").grant_write(old))
    assert not (await house.rule(wish, ALONE)).allowed


@pytest.mark.parametrize(
    "action",
    ["make deploy", "npm run build", "pnpm test", "yarn x", "pytest -q", "cargo test", "tox", "nox",
     "just x", "./gradlew build", "mvn verify", "python3 -m tools.deploy", "python3.12 s.py",
     "node x.js", ".venv/bin/python s.py", "env -i make", "timeout 5 pytest", "uv run x",
     "sh -c 'cat x'", "bash -lc 'ls'", "su -c 'make x'", "find . -exec sh x", "pip install .",
     "docker build .", "xargs -a list sh"],
)  # fmt: skip
@pytest.mark.parametrize("reaching", [Isolation.BEYOND, Isolation.NETWORK])
async def test_what_files_say_that_are_not_named_is_for_once(
    house: ApprovalHarness, tmp_path: Path, action: str, reaching: Isolation
) -> None:
    wish = far(action, tmp_path, reaching)
    assert (await answer_request(house, ApprovalChoice.ALWAYS, wish=wish)).allowed
    (question,) = house.questions
    assert question.choices == ("once", "deny")
    assert "This once only: what " in question.text
    assert await house.desk.grants() == []
    assert not make_grant(wish, "g", session="", by=OWNER).covers(wish)


@pytest.mark.parametrize("first", ["#!/usr/bin/env python3", "#!/usr/bin/env -S node", "#!/x/perl"])
async def test_a_script_that_loads_what_lies_beside_it_is_for_once(
    house: ApprovalHarness, tmp_path: Path, first: str
) -> None:
    (tmp_path / "deploy").write_text(f"{first}\nimport helper\n")
    wish = far("./deploy now", tmp_path)
    assert (await answer_request(house, ApprovalChoice.ALWAYS, wish=wish)).allowed
    assert house.questions[0].choices == ("once", "deny")
    assert "This once only: what " in house.questions[0].text
    assert await house.desk.grants() == []


@pytest.mark.parametrize(
    "action", ["git push", "curl https://a.example", "ls -la", "sh s.sh", "pip install requests",
               "gh pr list", "docker ps", "rm -rf build"]
)  # fmt: skip
def test_what_its_words_say_lasts(tmp_path: Path, action: str) -> None:
    assert can_be_saved(far(action, tmp_path))
    assert not unsealable_program(simple_argv(action) or ())


def test_behind_no_gap_in_the_wall_runners_last(tmp_path: Path) -> None:
    assert can_be_saved(far("make test", tmp_path, Isolation.OPEN))


def test_programs_count_where_they_can_be_replaced(tmp_path: Path) -> None:
    near = tmp_path / "bin"
    near.mkdir()
    where = SealContext(folder=str(tmp_path), workspace=str(tmp_path), path="bin:/usr/bin:/bin")
    assert command_seal(("env", "x"), where) == ""
    program = near / "env"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    first = command_seal(("env", "x"), where)
    program.write_text("#!/bin/sh\nevil\n")
    assert len({"", first, command_seal(("env", "x"), where)}) == 3


def test_a_link_counts_with_what_it_leads_to(tmp_path: Path) -> None:
    where = SealContext(folder=str(tmp_path), workspace=str(tmp_path))
    link = tmp_path / "tool"
    link.symlink_to("/bin/true")
    first = command_seal(("./tool",), where)
    link.unlink()
    link.symlink_to("/bin/sh")
    assert len({"", first, command_seal(("./tool",), where)}) == 3


def test_a_file_too_large_to_be_read_counts_by_its_last_change(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(40 * 1024 * 1024)
    where = SealContext(folder=str(tmp_path))
    first = command_seal(("x", "large"), where)
    assert first == command_seal(("x", "large"), where) != ""
    with large.open("ab") as file:
        file.write(b"x")
    assert command_seal(("x", "large"), where) not in {"", first}
