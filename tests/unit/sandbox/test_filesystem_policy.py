"""Filesystem policy: what is hidden, what is writable, and which rule wins."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hermes.ports.sandbox import ProcessPermissions
from hermes.sandbox.filesystem_policy import (
    FilesystemPolicy,
    PathAccess,
    PathRule,
    path_rules,
    policy_for,
    prune_tmp_folder,
)
from hermes.schema.scope import OWNER


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("home/.ssh", "home/work/.git/hooks", "home/.hermes/skills", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home/work/.git/config").write_text("")
    (tmp_path / "home/.netrc").write_text("")
    return tmp_path.resolve()


def access(
    root: Path, policy: FilesystemPolicy, *writable: str, read_only: tuple[str, ...] = ()
) -> dict[str, PathAccess]:
    reach = ProcessPermissions(
        writable=tuple(str(root / name) for name in writable),
        read_only=tuple(str(root / name) for name in read_only),
    )
    found = path_rules(policy, reach)
    assert found == sorted(found, key=lambda rule: Path(rule.path).parts)
    return {str(Path(rule.path).relative_to(root)): rule.access for rule in found}


def test_secrets_stay_hidden_in_a_writable_folder(root: Path):
    home = root / "home"
    policy = FilesystemPolicy(tmp="/t", hidden=(f"{home}/.ssh", f"{home}/.n*rc", f"{home}/.aws"))
    assert access(root, policy, "home") == {
        "home": PathAccess.CHANGE,
        "home/.netrc": PathAccess.HIDDEN,
        "home/.ssh": PathAccess.HIDDEN,
    }


def test_only_existing_visible_entries_of_a_home_are_writable(root: Path):
    home = root / "home"
    for name in ("bin", "notes", ".config"):
        (home / name).mkdir()
    (home / "list.txt").write_text("")
    (home / "link").symlink_to(root / "elsewhere")
    policy = FilesystemPolicy(tmp="/t", user_home=str(home), guarded=())
    wanted = {
        "home/list.txt": PathAccess.CHANGE,
        "home/notes": PathAccess.CHANGE,
        "home/work": PathAccess.CHANGE,
    }
    assert access(root, policy, "home") == wanted
    above = access(root, policy, ".")
    assert above == {".": PathAccess.CHANGE, "home": PathAccess.READ} | wanted
    assert access(root, policy, "home/work") == {"home/work": PathAccess.CHANGE}


def test_shared_folder_is_writable_if_permitted(root: Path):
    hermes = root / "home/.hermes"
    (hermes / "workspace").mkdir()
    policy = FilesystemPolicy(
        tmp="/t", hidden=(str(hermes),), writable_on_request=(f"{hermes}/workspace",)
    )
    kept = {"home/.hermes": PathAccess.HIDDEN}
    assert access(root, policy) == kept | {"home/.hermes/workspace": PathAccess.READ}
    working = access(root, policy, "home/.hermes/workspace")
    assert working == kept | {"home/.hermes/workspace": PathAccess.CHANGE}


def test_reader_paths_are_hidden_from_writers(root: Path):
    policy = FilesystemPolicy(
        tmp="/t", hidden=(f"{root}/home",), reader_paths=(f"{root}/home/work",)
    )
    assert access(root, policy)["home/work"] is PathAccess.READ
    assert "home/work" not in access(root, policy, "elsewhere")


def test_each_principal_has_its_own_temporary_folder():
    policy = FilesystemPolicy(tmp="/t/tmp")
    assert policy_for(policy, OWNER) == policy
    first, second = (policy_for(policy, name).tmp for name in ("chat:1", "chat:2"))
    assert len({first, second, policy.tmp}) == 3
    assert policy_for(policy, "chat:1").tmp == first


def test_read_only_paths_do_not_reveal_hidden_folders(
    root: Path,
):
    policy = FilesystemPolicy(tmp="/t", hidden=(f"{root}/home/.ssh",))
    names = ("home/work/.git/hooks", "home/.ssh/config", "elsewhere")
    assert access(root, policy, "home", read_only=names) == {
        "home": PathAccess.CHANGE,
        "home/.ssh": PathAccess.HIDDEN,
        "home/work/.git/hooks": PathAccess.READ,
    }


def test_hidden_path_cannot_be_made_writable(root: Path):
    policy = FilesystemPolicy(tmp="/t", hidden=(f"{root}/home/.ssh",))
    assert access(root, policy, "home/.ssh") == {"home/.ssh": PathAccess.HIDDEN}


def test_shown_path_inside_a_hidden_one_is_readable(root: Path):
    hermes = root / "home/.hermes"
    policy = FilesystemPolicy(
        tmp="/t", hidden=(str(hermes),), shown=(f"{hermes}/skills", f"{hermes}/no")
    )
    assert access(root, policy) == {
        "home/.hermes": PathAccess.HIDDEN,
        "home/.hermes/skills": PathAccess.READ,
    }


def test_redundant_rules_are_dropped(root: Path):
    policy = FilesystemPolicy(
        tmp="/t", hidden=(f"{root}/home", f"{root}/home/.ssh"), shown=(f"{root}/elsewhere",)
    )
    assert access(root, policy) == {"home": PathAccess.HIDDEN}


def test_rule_for_a_link_applies_to_its_target(root: Path):
    (root / "home/.aws").symlink_to(root / "elsewhere")
    (root / "home/.gnupg").symlink_to(root / "nowhere")
    policy = FilesystemPolicy(tmp="/t", hidden=(f"{root}/home/.aws", f"{root}/home/.gnupg"))
    assert access(root, policy) == {"elsewhere": PathAccess.HIDDEN}


def test_whole_machine_can_be_writable(root: Path):
    policy = FilesystemPolicy(tmp="/t", hidden=(f"{root}/home/.ssh",))
    found = path_rules(policy, ProcessPermissions(writable=("/",)))
    assert found[0] == PathRule("/", PathAccess.CHANGE)
    assert PathRule(f"{root}/home/.ssh", PathAccess.HIDDEN) in found


def test_only_old_temporary_files_are_deleted(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    private = tmp_path / "private"
    (private / "folder").mkdir(parents=True)
    (private / "file").write_text("x")
    (private / "link").symlink_to(outside)
    now = datetime.now(UTC)
    prune_tmp_folder(str(private), now)
    assert {path.name for path in private.iterdir()} == {"folder", "file", "link"}
    prune_tmp_folder(str(private), now + timedelta(days=8))
    assert [*private.iterdir()] == []
    assert (outside / "kept").exists()
    prune_tmp_folder(str(tmp_path / "nowhere"), now)
