"""The keys, origins and routes that the API server accepts, and their sources."""

import msgspec
import pytest

from hermes.api.settings import is_enabled, read_settings
from hermes.config.schema import Config
from hermes.schema.errors import ConfigError
from support.cases import cases

KEY = "k-0123456789abcdef"


def config(**platform: object) -> Config:
    return msgspec.convert({"platforms": {"api_server": platform}}, Config)


@cases(
    "key",
    ["", "brief", "k" * 15, "a" * 40, "changeme-changeme-changeme", "your-api-key-goes-in-here",
     "key with blanks 0123456789", "schlüssel-0123456789abc", "tab\t0123456789abcdef"],
)  # fmt: skip
def test_weak_key_is_rejected(key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_settings(config(extra={"key": key}), {})
    assert "API_SERVER_KEY" in refused.value.hint
    assert not key or key not in str(refused.value)


def test_file_wins_over_variables() -> None:
    env = {
        "API_SERVER_KEY": KEY,
        "API_SERVER_PORT": "9000",
        "API_SERVER_HOST": "0.0.0.0",  # noqa: S104
        "API_SERVER_CORS_ORIGINS": "https://A.example/, https://b.example",
        "API_SERVER_MODEL_NAME": "Ada",
        "API_SERVER_ALLOWED_HOSTS": "Host.docker.internal, hermes",
    }
    read = read_settings(Config(), env)
    assert (read.key, read.port, read.host, read.model_name) == (KEY, 9000, "0.0.0.0", "Ada")  # noqa: S104
    assert read.cors_origins == ("https://a.example", "https://b.example")
    assert read.allowed_hosts == ("host.docker.internal", "hermes")
    listed = config(extra={"allowed_hosts": ["box.lan"], "key": KEY})
    assert read_settings(listed, env).allowed_hosts == ("box.lan",)
    assert read_settings(config(extra={"port": 7000, "key": KEY + "x"}), env).port == 7000
    assert read_settings(config(extra={"key": "", "port": 7000}), env).key == KEY
    assert read.max_turns == 10


def test_enabled_by_file_or_variable() -> None:
    assert not is_enabled(Config(), {})
    assert is_enabled(Config(), {"API_SERVER_ENABLED": "true"})
    assert is_enabled(config(enabled=True), {})
    assert not is_enabled(config(enabled=True), {"API_SERVER_ENABLED": "no"})


def test_model_routes() -> None:
    def read(**route: str) -> object:
        extra = {"key": KEY, "model_routes": {"fast": route}}
        return read_settings(config(extra=extra), {}).model_routes["fast"].provider

    assert read(model="m", provider="openai") == "openai"
    assert read(model="m", base_url="http://127.0.0.1:1/v1", api_key="x") == "custom:api-fast"
    for wrong in ({"model": "m", "api_key": "x"}, {"model": " "}, {"provider": "openai"}):
        with pytest.raises(ConfigError):
            read(**wrong)


def test_wrong_type_is_reported() -> None:
    with pytest.raises(ConfigError, match="port"):
        read_settings(config(extra={"key": KEY, "port": "many"}), {})


def test_strict_models_from_file_or_variable() -> None:
    assert not read_settings(config(extra={"key": KEY}), {}).strict_models
    assert read_settings(config(extra={"key": KEY, "strict_models": True}), {}).strict_models
    env = {"API_SERVER_KEY": KEY, "API_SERVER_STRICT_MODELS": "true"}
    assert read_settings(Config(), env).strict_models
    off = config(extra={"key": KEY, "strict_models": False})
    assert not read_settings(off, env).strict_models
