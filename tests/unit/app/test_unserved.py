"""Everything in a home that this version does not serve is named, and nothing else."""

from pathlib import Path

from hermes.app.unserved import unserved
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.loader import load_config


def names(path: Path, settings: str = "", **env: str) -> list[str]:
    (path / "config.yaml").write_text(settings)
    home = Home(path, path)
    return [one.name for one in unserved(home, load_config(home, Env(env)).config, env)]


def test_fresh_home_contains_nothing_unserved(tmp_path: Path) -> None:
    for folder in ("cron", "plugins", "skins", "kanban"):
        (tmp_path / folder).mkdir()
    (tmp_path / "cron" / "jobs.json").write_text('{"jobs": [{"id": "a"}]}')
    assert (
        names(tmp_path, "platforms: {webhook: {enabled: true}, api_server: {enabled: true}}") == []
    )


def test_chat_app_is_named_by_its_token_or_its_setting(tmp_path: Path) -> None:
    assert names(tmp_path, DISCORD_BOT_TOKEN="1:a") == ["Discord"]
    assert names(tmp_path, TELEGRAM_BOT_TOKEN="1:a") == []
    assert names(tmp_path, WHATSAPP_ENABLED="true") == ["WhatsApp"]
    assert names(tmp_path, "platforms: {discord: {enabled: true}}") == ["Discord"]
    assert names(tmp_path, "platforms: {discord: {enabled: false}}", DISCORD_BOT_TOKEN=" ") == []


def test_plugins_and_skins_are_counted(tmp_path: Path) -> None:
    (tmp_path / "plugins" / "weather").mkdir(parents=True)
    (tmp_path / "plugins" / "weather" / "plugin.yaml").touch()
    (tmp_path / "skins").mkdir()
    (tmp_path / "skins" / "dark.yaml").touch()
    assert names(tmp_path) == ["1 plugin", "1 skin"]
