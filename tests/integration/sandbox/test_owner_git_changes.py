"""Commands cannot make the owner's git execute something by changing what files lead to."""

from pathlib import Path

import anyio
import pytest

from support.gateway import wait_until
from support.git_owner import Owner

EVIL_REPOSITORY = """\
[core]
\trepositoryformatversion = 0
\tfsmonitor = "touch {marker}; false"
"""


def outside_repository(owner: Owner) -> Path:
    """A repository outside the workspace that executes something, as a command can make in /tmp."""
    outside = owner.home.parent / "outside"
    owner.git("init", "-q", str(outside), folder=owner.home)
    (outside / ".git/config").write_text(EVIL_REPOSITORY.format(marker=owner.marker))
    return outside


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("mkdir n; echo 'gitdir: ../gone' > n/.git", "ln -s {outside}/.git gone"),
        ("mkdir n; echo 'gitdir: ../gone/.git' > n/.git", "ln -s {outside} gone"),
        ("mkdir n here; echo 'gitdir: ../here' > n/.git", "rmdir here; ln -s {outside}/.git here"),
    ],
)
async def test_git_file_is_set_aside_if_its_target_becomes_a_link(
    owner: Owner, first: str, second: str
):
    outside = outside_repository(owner)
    await owner.command(first)
    result = await owner.command(second.format(outside=outside))
    owner.use_git(owner.work / "n")
    assert not owner.marker.exists()
    assert "n/.git was renamed" in result.output.decode()


async def test_working_tree_that_becomes_a_link_is_not_written_to(owner: Owner):
    outside = owner.home.parent / "outside"
    outside.mkdir()
    await owner.command(
        "git init -q n; cd n; touch planted; git add planted; git commit -qm one; "
        "mkdir ../tree; git config core.worktree ../../tree"
    )
    await owner.command(f"rmdir tree; ln -s {outside} tree")
    owner.git("checkout", "-f", ".", folder=owner.work / "n", check=False)
    assert not (outside / "planted").exists()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_remote_on_this_machine_with_a_host_is_set_aside(owner: Owner, host: str):
    outside = owner.home.parent / "outside.git"
    owner.git("init", "-q", "--bare", str(outside), folder=owner.home)
    owner.write(outside / "hooks/post-receive", f"#!/bin/sh\ntouch {owner.marker}\n", 0o755)
    await owner.command(
        "git init -q n; cd n; git commit -q --allow-empty -m one; "
        f"git remote add origin file://{host}{outside}"
    )
    owner.git("push", "-q", "origin", "HEAD:main", folder=owner.work / "n", check=False)
    assert not owner.marker.exists()


async def test_remote_that_becomes_a_link_is_not_used(owner: Owner):
    outside = owner.home.parent / "outside"
    owner.git("init", "-q", "--bare", str(outside / "k.git"), folder=owner.home)
    owner.write(outside / "k.git/hooks/post-receive", f"#!/bin/sh\ntouch {owner.marker}\n", 0o755)
    await owner.command(
        "git init -q n; cd n; git commit -q --allow-empty -m one; "
        "git remote add origin ../gone/k.git"
    )
    await owner.command(f"ln -s {outside} gone")
    owner.git("push", "-q", "origin", "HEAD:main", folder=owner.work / "n", check=False)
    assert not owner.marker.exists()


async def test_file_replaced_during_a_command_is_restored_if_the_command_changed_it(owner: Owner):
    """Replacing a file removes the read-only mount over it."""
    owner.write(owner.work / ".envrc", "owner\n")
    ready = owner.work / "ready"
    planted = f'[core]\\n\\tfsmonitor = "touch {owner.marker}; false"\\n'

    async def replace() -> None:
        await wait_until(ready.exists)
        owner.git("config", "user.name", "other")
        owner.write(owner.work / ".envrc.new", "owner\n").rename(owner.work / ".envrc")
        (owner.work / "replaced").touch()

    async with anyio.create_task_group() as group:
        group.start_soon(replace)
        result = await owner.command(
            "touch ready; until [ -e replaced ]; do sleep 0.02; done; "
            f"printf '{planted}' >> repo/.git/config; echo evil > .envrc; true"
        )
    owner.use_git()
    assert not owner.marker.exists()
    assert (owner.work / ".envrc").read_text() == "owner\n"
    assert owner.git("config", "core.fsmonitor", check=False) == ""
    assert "repo/.git/config was renamed" in result.output.decode()


async def test_ordinary_settings_changed_by_the_owner_during_a_command_stay(owner: Owner):
    ready = owner.work / "ready"

    async def change() -> None:
        await wait_until(ready.exists)
        owner.git("config", "user.name", "other")
        (owner.work / "changed").touch()

    async with anyio.create_task_group() as group:
        group.start_soon(change)
        result = await owner.command("touch ready; until [ -e changed ]; do sleep 0.02; done")
    assert owner.git("config", "user.name") == "other\n"
    assert "renamed" not in result.output.decode()


async def test_new_shell_and_husky_files_are_set_aside(owner: Owner):
    result = await owner.command("echo evil > .envrc; evil .husky/pre-commit")
    assert not (owner.work / ".envrc").exists()
    assert not (owner.work / ".husky").exists()
    assert (owner.work / ".envrc.set-aside").read_text() == "evil\n"
    assert "your shell would execute it" in result.output.decode()
