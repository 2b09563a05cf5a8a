from pathlib import Path

import pytest

from hermes.config.home import (
    INITIAL_FOLDERS,
    Home,
    check_new_name,
    ensure_home,
    hermes_root,
    named_profiles,
    profile_home,
    resolve_home,
)
from hermes.kit.errors import ConfigError, UsageError
from support.cases import cases


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("work", "play"):
        (tmp_path / "profiles" / name).mkdir(parents=True)
    return tmp_path


def env(path: object) -> dict[str, str]:
    return {"HERMES_HOME": str(path), "HOME": "/home/somebody"}


def test_default_home_is_in_the_user_home():
    assert resolve_home({"HOME": "/home/somebody"}) == Home(
        Path("/home/somebody/.hermes"), Path("/home/somebody/.hermes")
    )


@pytest.mark.parametrize("home", ["", "   "])
def test_an_empty_hermes_home_counts_as_none(home: str):
    assert hermes_root(env(home)) == Path("/home/somebody/.hermes")


def test_a_tilde_is_the_persons_home():
    assert hermes_root(env("~/agent")) == Path("/home/somebody/agent")


def test_dots_are_resolved(tmp_path):
    assert hermes_root(env(tmp_path / "a" / ".." / "b")) == tmp_path / "b"


def test_requested_profile_wins(root):
    (root / "active_profile").write_text("play\n")
    assert resolve_home(env(root), "work") == Home(root, root / "profiles" / "work", "work")
    assert resolve_home(env(root / "profiles" / "play"), "work").profile == "work"
    assert resolve_home(env(root), "default") == Home(root, root)


def test_a_home_inside_profiles_names_profile_and_root(root):
    (root / "active_profile").write_text("play\n")
    assert resolve_home(env(root / "profiles" / "work")) == profile_home(root, "work")


def test_active_profile_has_lowest_precedence(root):
    assert resolve_home(env(root)).profile == "default"
    (root / "active_profile").write_text(" play \n")
    assert resolve_home(env(root)).profile == "play"
    (root / "active_profile").write_text("default")
    assert resolve_home(env(root)).path == root


def test_an_unknown_profile_names_those_that_exist(root):
    with pytest.raises(ConfigError) as caught:
        resolve_home(env(root), "wrok")
    assert str(caught.value) == "Unknown profile: 'wrok'. Known profiles: default, play, work."
    assert caught.value.hint == "Did you mean work?"
    with pytest.raises(ConfigError, match="Unknown profile: 'gone'"):
        resolve_home(env(root / "profiles" / "gone"))


@pytest.mark.parametrize("chosen", ["gone", "../..", "Work", "\0", "x" * 100])
def test_missing_active_profile_is_an_error_with_hint(root, chosen):
    (root / "active_profile").write_text(chosen)
    with pytest.raises(ConfigError) as caught:
        resolve_home(env(root))
    assert "hermes profile use" in caught.value.hint


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", "Work", ".hidden", "a" * 65])
def test_profile_name_cannot_escape_the_folder(root, name):
    with pytest.raises(UsageError):
        profile_home(root, name)


@cases("name", ["hermes", "default", "test", "tmp", "root", "sudo"])
def test_reserved_names_are_refused(name):
    with pytest.raises(UsageError, match="reserved"):
        check_new_name(name)


def test_reading_creates_nothing(tmp_path):
    resolve_home(env(tmp_path / "new"))
    named_profiles(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_home_must_be_a_directory(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError, match="is not a directory"):
        resolve_home(env(file))
    with pytest.raises(ConfigError, match="Not a directory"):
        ensure_home(resolve_home(env(file / "below")))
    link = tmp_path / "dangling"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is not a directory"):
        resolve_home(env(link))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(ConfigError):
        resolve_home(env(loop))


def test_uncreatable_home_is_an_error():
    with pytest.raises(ConfigError, match="cannot be created") as caught:
        ensure_home(resolve_home(env("/proc/hermes")))
    assert "HERMES_HOME" in caught.value.hint


def test_first_run_creates_folders_and_soul(tmp_path):
    home = resolve_home(env(tmp_path / "deep" / "home"))
    ensure_home(home)
    assert home.path.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in home.path.iterdir()} == {*INITIAL_FOLDERS, "SOUL.md"}
    assert len(home.soul.read_text().strip().splitlines()) == 1


def test_existing_files_are_kept(tmp_path):
    home = resolve_home(env(tmp_path))
    home.soul.write_text("I am mine.")
    tmp_path.chmod(0o750)
    ensure_home(home)
    ensure_home(home)
    assert home.soul.read_text() == "I am mine."
    assert tmp_path.stat().st_mode & 0o777 == 0o750


def test_kanban_is_shared_and_the_rest_is_not(root):
    home = profile_home(root, "work")
    assert (home.kanban, home.kanban_db) == (root / "kanban", root / "kanban.db")
    for own in (home.config, home.dotenv, home.database, home.cron, home.memories, home.skills):
        assert own.parent == root / "profiles" / "work"


def test_legacy_pairing_folder_is_used_while_not_empty(tmp_path):
    home = Home(tmp_path, tmp_path)
    assert home.pairing == tmp_path / "platforms" / "pairing"
    (tmp_path / "pairing").mkdir()
    assert home.pairing == tmp_path / "platforms" / "pairing"
    (tmp_path / "pairing" / "telegram-approved.json").write_text("{}")
    assert home.pairing == tmp_path / "pairing"
