import os
from pathlib import Path

import pytest

from hermes.config.env import read_dotenv
from hermes.config.home import INITIAL_FOLDERS, Home, active_profile_name, ensure_home, profile_home
from hermes.config.profiles import (
    create_profile,
    delete_profile,
    get_active_profile_name,
    list_profiles,
    profiles_to_serve,
    rename_profile,
    use_profile,
)
from hermes.kit.errors import ConfigError, UsageError


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "root", tmp_path / "root")
    ensure_home(home)
    home.config.write_text("model: a\n")
    home.dotenv.write_text("KEY=1\n")
    home.soul.write_text("Me.")
    (home.skills / "notes").mkdir()
    (home.skills / "notes" / "SKILL.md").write_text("skill")
    (home.memories / "MEMORY.md").write_text("memory")
    (home.memories / "USER.md").write_text("user")
    (home.memories / "other.md").write_text("other")
    home.database.write_text("db")
    (home.path / "hermes.db-wal").write_text("wal")
    home.gateway_pid.write_text("1")
    (home.sessions / "sessions.json").write_text("{}")
    (home.cron / "jobs.json").write_text("[]")
    (home.cron / "executions.db").write_text("db")
    (home.plugins / "mine").mkdir(parents=True)
    (home.plugins / "mine" / "plugin.yaml").write_text("name: mine")
    return home


def tree(path: Path) -> set[str]:
    return {str(p.relative_to(path)) for p in path.rglob("*") if not p.is_dir()}


def test_new_profile_has_all_files_of_a_home(home):
    made = create_profile(home.root, "work")
    assert made == profile_home(home.root, "work")
    assert {p.name for p in made.path.iterdir()} == {*INITIAL_FOLDERS, "SOUL.md"}
    assert made.path.stat().st_mode & 0o777 == 0o700


def test_a_clone_takes_settings_soul_skills_and_memory(home):
    made = create_profile(home.root, "work", clone=home)
    assert tree(made.path) == {
        *("config.yaml", ".env", "SOUL.md", "skills/notes/SKILL.md"),
        *("memories/MEMORY.md", "memories/USER.md"),
    }
    assert made.soul.read_text() == "Me."
    assert made.dotenv.stat().st_mode & 0o777 == 0o600


def test_a_full_clone_leaves_history_state_and_other_profiles(home):
    create_profile(home.root, "other")
    use_profile(home.root, "other")
    made = create_profile(home.root, "work", clone=home, everything=True)
    assert tree(made.path) == {
        *("config.yaml", ".env", "SOUL.md", "skills/notes/SKILL.md", "cron/jobs.json"),
        *("memories/MEMORY.md", "memories/USER.md", "memories/other.md"),
        "plugins/mine/plugin.yaml",
    }


def test_a_full_clone_keeps_links_as_links_and_leaves_pipes(home, tmp_path):
    (home.skills / "shared").symlink_to(tmp_path)
    os.mkfifo(home.path / "pipe")
    made = create_profile(home.root, "work", clone=home, everything=True)
    assert (made.skills / "shared").readlink() == tmp_path
    assert not (made.path / "pipe").exists()


OWN_SETTINGS = """\
model: a  # mine
platforms:
  telegram:
    enabled: true
    token: "123:bot"
  api_server:
    extra:
      key: old-api-key-0123456789
      model_routes: {x: {model: m, base_url: "http://h", api_key: outgoing}}
  webhook:
    extra:
      routes:
        git: {secret: old-route-secret, prompt: hi}
        open: {secret: INSECURE_NO_AUTH, prompt: hi}
dashboard:
  basic_auth: {username: me, password_hash: old-hash}
"""
OWN_VARIABLES = (
    "API_SERVER_KEY=first\nDEEPSEEK_API_KEY=ds\nAPI_SERVER_KEY=second\nTELEGRAM_BOT_TOKEN=1:b\n"
    "WEBHOOK_SECRET=old-secret\nTELEGRAM_ALLOWED_USERS=7\n"
)


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("linked", [False, True])
def test_clone_does_not_share_access_credentials(home, tmp_path, everything, linked):
    home.config.write_text(OWN_SETTINGS)
    home.dotenv.write_text(OWN_VARIABLES)
    home.webhook_subscriptions.write_text('{"r": {"secret": "s"}}')
    if linked:
        home.dotenv.rename(tmp_path / "variables")
        home.dotenv.symlink_to(tmp_path / "variables")
    made = create_profile(home.root, "work", clone=home, everything=everything)
    own = read_dotenv(made.dotenv)
    assert own["DEEPSEEK_API_KEY"] == "ds"
    assert own["TELEGRAM_ALLOWED_USERS"] == "7"
    assert "TELEGRAM_BOT_TOKEN" not in own
    fresh = own["API_SERVER_KEY"], own["WEBHOOK_SECRET"]
    assert len({*fresh, "first", "second", "old-secret"}) == 5
    assert all(len(one) >= 32 for one in fresh)
    text = made.config.read_text()
    assert text.startswith("model: a  # mine\n")
    assert "api_key: outgoing" in text
    assert "INSECURE_NO_AUTH" in text
    assert "old-" not in text + made.dotenv.read_text()
    assert "123:bot" not in text
    assert not made.webhook_subscriptions.exists()
    assert not made.dotenv.is_symlink()
    assert home.dotenv.read_text() == OWN_VARIABLES
    assert home.config.read_text() == OWN_SETTINGS


def test_clone_has_no_tokens_from_any_place_of_a_platform(home):
    home.config.write_text("""\
telegram: {token: old-1, require_mention: true, accounts: {work: {token: old-2}}}
irc: {server: irc.example, server_password: old-3}
homeassistant: {token: shared}
gateway:
  platforms:
    discord: {token: old-4}
    api_server: {extra: {key: old-5, model_routes: {x: {api_key: outgoing}}}}
""")
    made = create_profile(home.root, "work", clone=home)
    text = made.config.read_text()
    assert "old-" not in text
    assert "require_mention: true" in text
    assert "server: irc.example" in text
    assert "token: shared" in text
    assert "api_key: outgoing" in text
    assert "API_SERVER_KEY" in read_dotenv(made.dotenv)


def test_the_original_is_independent_of_the_clone(home):
    made = create_profile(home.root, "work", clone=home)
    made.config.write_text("model: b\n")
    assert home.config.read_text() == "model: a\n"


@pytest.mark.parametrize(
    "text",
    [
        "platforms:\n  slack: &x\n    token: abc\n  discord:\n    <<: *x\n    enabled: true\n",
        "x: &x {token: abc}\nplatforms:\n  slack:\n    <<: *x\n    enabled: true\n",
    ],
)
def test_secrets_behind_merge_keys_are_not_cloned(home, text):
    home.config.write_text(text)
    with pytest.raises(ConfigError, match="cannot be changed safely") as raised:
        create_profile(home.root, "work", clone=home)
    assert str(home.config) in str(raised.value)
    assert "<<" in str(raised.value.hint)
    assert list((home.root / "profiles").iterdir()) == []


def test_a_failed_creation_leaves_nothing(home):
    (home.root / "profiles").mkdir()
    broken = Home(home.root, home.root / "nowhere")
    with pytest.raises(ConfigError, match="could not be created"):
        create_profile(home.root, "work", clone=broken, everything=True)
    assert list((home.root / "profiles").iterdir()) == []


def test_existing_name_is_refused(home):
    create_profile(home.root, "work")
    with pytest.raises(UsageError, match="already"):
        create_profile(home.root, "work")
    with pytest.raises(UsageError, match="reserved"):
        create_profile(home.root, "default")
    with pytest.raises(UsageError, match="not a valid profile name"):
        create_profile(home.root, "../up")


def test_list_marks_the_active_profile(home):
    create_profile(home.root, "work")
    create_profile(home.root, "art")
    use_profile(home.root, "work")
    assert [(p.name, p.active) for p in list_profiles(home.root)] == [
        ("default", False),
        ("art", False),
        ("work", True),
    ]
    use_profile(home.root, "default")
    assert list_profiles(home.root)[0].active
    assert not home.active_profile.exists()


def test_only_an_existing_profile_can_be_used(home):
    with pytest.raises(ConfigError, match="Unknown profile") as caught:
        use_profile(home.root, "gone")
    assert caught.value.hint == "Create it with: hermes profile create gone"
    with pytest.raises(ConfigError, match="Unknown profile") as caught:
        delete_profile(home.root, "gone")
    assert caught.value.hint == ""
    assert active_profile_name(home.root) == "default"


def test_the_active_name_follows_flag_home_and_choice(home):
    create_profile(home.root, "work")
    create_profile(home.root, "art")
    env = {"HERMES_HOME": str(home.root)}
    assert get_active_profile_name(env) == "default"
    use_profile(home.root, "work")
    assert get_active_profile_name(env) == "work"
    assert get_active_profile_name(env, "art") == "art"
    inside = {"HERMES_HOME": str(home.root / "profiles" / "art")}
    assert get_active_profile_name(inside) == "art"


def test_profiles_served_by_a_gateway(home):
    work = create_profile(home.root, "work")
    art = create_profile(home.root, "art")
    (home.root / "profiles" / "not-a-folder").write_text("")
    (home.root / "profiles" / ".hidden").mkdir()
    assert profiles_to_serve(False, home) == [("default", home.root)]
    assert profiles_to_serve(False, work) == [("work", work.path)]
    everybody = [("default", home.root), ("art", art.path), ("work", work.path)]
    assert profiles_to_serve(True, home) == everybody
    assert profiles_to_serve(True, work) == everybody


def test_delete_removes_only_the_profile_and_its_selection(home):
    create_profile(home.root, "work", clone=home)
    use_profile(home.root, "work")
    before = tree(home.root) - {"active_profile"}
    delete_profile(home.root, "work")
    assert tree(home.root) == {p for p in before if not p.startswith("profiles/")}
    assert list((home.root / "profiles").iterdir()) == []
    assert active_profile_name(home.root) == "default"


def test_deleting_another_keeps_the_choice(home):
    create_profile(home.root, "work")
    create_profile(home.root, "art")
    use_profile(home.root, "art")
    delete_profile(home.root, "work")
    assert active_profile_name(home.root) == "art"


def test_links_are_never_followed_when_deleting(home, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    work = create_profile(home.root, "work")
    (work.path / "link").symlink_to(outside)
    (home.root / "profiles" / "linked").symlink_to(outside)
    with pytest.raises(UsageError, match="symbolic link"):
        delete_profile(home.root, "linked")
    with pytest.raises(UsageError, match="symbolic link"):
        rename_profile(home.root, "linked", "other")
    delete_profile(home.root, "work")
    assert (outside / "precious").read_text() == "x"


@pytest.mark.parametrize("name", ["default", "../root", "gone", ""])
def test_default_or_unknown_profile_cannot_be_deleted(home, name):
    before = tree(home.root)
    with pytest.raises((UsageError, ConfigError)):
        delete_profile(home.root, name)
    assert tree(home.root) == before


def test_renamed_profile_stays_active(home):
    create_profile(home.root, "work", clone=home)
    use_profile(home.root, "work")
    renamed = rename_profile(home.root, "work", "job")
    assert renamed == profile_home(home.root, "job")
    assert renamed.config.read_text() == "model: a\n"
    assert active_profile_name(home.root) == "job"


def test_renaming_never_overwrites(home):
    create_profile(home.root, "work")
    create_profile(home.root, "art")
    with pytest.raises(UsageError, match="already"):
        rename_profile(home.root, "work", "art")
    with pytest.raises(UsageError, match="default profile"):
        rename_profile(home.root, "default", "x")
    assert [p.name for p in list_profiles(home.root)] == ["default", "art", "work"]


def test_list_and_use_work_with_broken_active_profile(home):
    create_profile(home.root, "work")
    home.active_profile.write_text("gone")
    assert [p.name for p in list_profiles(home.root) if p.active] == ["default"]
    use_profile(home.root, "work")
    assert active_profile_name(home.root) == "work"
