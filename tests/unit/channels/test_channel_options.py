"""Typed options of a platform from settings and environment variables."""

import pytest
from msgspec import Struct

from hermes.ports.channel_options import read_options
from hermes.schema.errors import ConfigError


class Options(Struct, frozen=True, kw_only=True):
    url: str = "http://localhost"
    port: int = 80
    rooms: tuple[str, ...] = ()
    quiet: bool = False


VARIABLES = {"url": "PIGEON_URL", "port": "PIGEON_PORT", "rooms": "PIGEON_ROOMS"}


def read(extra: dict[str, object], env: dict[str, str]) -> Options:
    return read_options(Options, "pigeon", extra, env, VARIABLES)


def test_defaults_apply_to_what_is_not_set() -> None:
    assert read({"other": 1}, {"PIGEON_URL": " "}) == Options()


def test_variable_overrides_the_setting() -> None:
    assert read({"url": "a", "port": 1}, {"PIGEON_PORT": "2"}) == Options(url="a", port=2)


def test_lists_may_be_comma_separated() -> None:
    assert read({"rooms": ["a", "b"]}, {}).rooms == ("a", "b")
    assert read({"rooms": "a, b,"}, {}).rooms == ("a", "b")
    assert read({"rooms": ["a"]}, {"PIGEON_ROOMS": "b,c"}).rooms == ("b", "c")


@pytest.mark.parametrize(
    ("extra", "env", "name"),
    [
        ({"port": "many"}, {}, "platforms.pigeon.extra.port"),
        ({"port": 1}, {"PIGEON_PORT": "many"}, "PIGEON_PORT"),
        ({"quiet": []}, {}, "platforms.pigeon.extra.quiet"),
    ],
)
def test_wrong_value_is_named(extra: dict[str, object], env: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        read(extra, env)
