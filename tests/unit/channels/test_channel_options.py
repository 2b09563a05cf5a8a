"""Typed options of a platform from settings and environment variables."""

from collections.abc import Mapping
from typing import Literal

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


def test_defaults_apply_to_unset_options() -> None:
    assert read({"other": 1}, {"PIGEON_URL": " "}) == Options()


def test_variable_overrides_the_setting() -> None:
    assert read({"url": "a", "port": 1}, {"PIGEON_PORT": "2"}) == Options(url="a", port=2)


def test_lists_may_be_comma_separated() -> None:
    assert read({"rooms": ["a", "b"]}, {}).rooms == ("a", "b")
    assert read({"rooms": "a, b,"}, {}).rooms == ("a", "b")
    assert read({"rooms": ["a"]}, {"PIGEON_ROOMS": "b,c"}).rooms == ("b", "c")


def test_ids_may_be_numbers() -> None:
    assert read({"rooms": [-100123, "b"], "url": 5}, {}) == Options(url="5", rooms=("-100123", "b"))
    assert read({"rooms": 7}, {}).rooms == ("7",)


def test_switches_have_the_words_of_yaml() -> None:
    variables = {"quiet": "PIGEON_QUIET"}
    for word, on in {"yes": True, "ON": True, "1": True, "off": False, "no": False}.items():
        read_word = read_options(Options, "pigeon", {}, {"PIGEON_QUIET": word}, variables)
        assert read_word.quiet is on
        assert read({"quiet": word}, {}).quiet is on


def test_words_that_yaml_reads_as_switches_are_choices() -> None:
    class Choices(Struct, frozen=True, kw_only=True):
        mode: Literal["off", "all"] = "all"
        prompts: Mapping[str, str] = {}
        ids: frozenset[str] = frozenset()

    extra = {"mode": False, "prompts": {42: "Hi"}, "ids": [7, "8"]}
    expected = Choices(mode="off", prompts={"42": "Hi"}, ids=frozenset({"7", "8"}))
    assert read_options(Choices, "pigeon", extra, {}, {}) == expected


@pytest.mark.parametrize(
    ("extra", "env", "name"),
    [
        ({"url": 5, "port": "many"}, {}, "platforms.pigeon.extra.port"),
        ({"port": "many"}, {}, "platforms.pigeon.extra.port"),
        ({"port": 1}, {"PIGEON_PORT": "many"}, "PIGEON_PORT"),
        ({"quiet": "maybe"}, {}, "platforms.pigeon.extra.quiet"),
        ({"quiet": []}, {}, "platforms.pigeon.extra.quiet"),
    ],
)
def test_wrong_value_is_named(extra: dict[str, object], env: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        read(extra, env)
