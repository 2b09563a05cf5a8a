"""Everything in a home that this version does not serve is named, and nothing else."""

from collections.abc import Collection
from pathlib import Path

from hermes.app.unsupported_features import unsupported_features
from hermes.channels import MANIFESTS
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.config.platforms import PLATFORMS, facts_of

CHANNELS = frozenset({"telegram", "webhook"})


def names(
    path: Path, settings: str = "", channels: Collection[str] = CHANNELS, **env: str
) -> list[str]:
    (path / "config.yaml").write_text(settings)
    home = Home(path, path)
    config = load_config(home, Env(env)).config
    return [one.name for one in unsupported_features(home, config, env, channels)]


def test_fresh_home_contains_nothing_unserved(tmp_path: Path) -> None:
    for folder in ("cron", "plugins", "skins", "kanban"):
        (tmp_path / folder).mkdir()
    (tmp_path / "cron" / "jobs.json").write_text('{"jobs": [{"id": "a"}]}')
    assert (
        names(tmp_path, "platforms: {webhook: {enabled: true}, api_server: {enabled: true}}") == []
    )


def test_chat_app_is_named_by_its_token_or_its_setting(tmp_path: Path) -> None:
    assert names(tmp_path, TEAMS_CLIENT_SECRET="a") == ["Microsoft Teams"]
    assert names(tmp_path, TELEGRAM_BOT_TOKEN="1:a") == []
    assert names(tmp_path, WHATSAPP_ENABLED="true") == ["WhatsApp"]
    assert names(tmp_path, WHATSAPP_ENABLED="false") == []
    assert names(tmp_path, SIGNAL_HTTP_URL="http://127.0.0.1:8080") == ["Signal"]
    assert names(tmp_path, NTFY_TOPIC="alerts") == ["ntfy"]
    assert names(tmp_path, "platforms: {teams: {enabled: true}}") == ["Microsoft Teams"]
    assert names(tmp_path, "platforms: {teams: {enabled: false}}", TEAMS_CLIENT_SECRET=" ") == []


def test_app_with_a_channel_is_not_named(tmp_path: Path) -> None:
    """The list follows the catalog of channels."""
    tokens = {f"{one.prefix}_{one.variables[0][0]}": "x" for one in PLATFORMS}
    every = {one.platform for one in PLATFORMS}
    assert names(tmp_path, channels=every, **tokens) == []
    labels = {facts_of(one).label for one in every - {*MANIFESTS}}
    assert {*names(tmp_path, channels=MANIFESTS, **tokens)} == labels


def test_plugins_and_skins_are_counted(tmp_path: Path) -> None:
    (tmp_path / "plugins" / "weather").mkdir(parents=True)
    (tmp_path / "plugins" / "weather" / "plugin.yaml").touch()
    (tmp_path / "skins").mkdir()
    (tmp_path / "skins" / "dark.yaml").touch()
    assert names(tmp_path) == ["1 plugin", "1 skin"]
