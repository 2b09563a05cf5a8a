"""Names of variables, lists of ids, and canonical ids."""

from hermes.config.variables import VARIABLES
from hermes.gateway.platform_settings import (
    canonical_id,
    home_variables,
    is_true,
    parse_list,
    platform_variable,
)
from support.cases import cases


@cases(
    ("platform", "name"),
    [
        ("telegram", "TELEGRAM_ALLOWED_USERS"),
        ("whatsapp_cloud", "WHATSAPP_CLOUD_ALLOWED_USERS"),
        ("qqbot", "QQ_ALLOWED_USERS"),
        ("homeassistant", "HASS_ALLOWED_USERS"),
        ("msgraph_webhook", "MSGRAPH_ALLOWED_USERS"),
    ],
)
def test_variable_names_are_known_settings(platform: str, name: str) -> None:
    assert platform_variable(platform, "ALLOWED_USERS") == name
    assert name in VARIABLES
    assert home_variables(platform)[-1] in VARIABLES


def test_plugin_platform_has_variables() -> None:
    assert platform_variable("my-chat", "ALLOWED_USERS") == "MY_CHAT_ALLOWED_USERS"


def test_home_variable_of_some_platforms_differs() -> None:
    assert home_variables("slack") == ("SLACK_HOME_CHANNEL",)
    assert home_variables("qqbot") == ("QQBOT_HOME_CHANNEL", "QQ_HOME_CHANNEL")
    assert home_variables("email") == ("EMAIL_HOME_ADDRESS", "EMAIL_HOME_CHANNEL")
    assert home_variables("matrix") == ("MATRIX_HOME_ROOM", "MATRIX_HOME_CHANNEL")


@cases(
    ("value", "entries"),
    [
        ("1, 2,,1 ", ("1", "2")),
        ([1, "2", " 3 ", True, None, {"a": 1}], ("1", "2", "3")),
        (17, ("17",)),
        (-100123, ("-100123",)),
        *((nothing, ()) for nothing in (None, "", [], True, {}, 1.5)),
    ],
)
def test_parse_list_formats(value: object, entries: tuple[str, ...]) -> None:
    assert parse_list(value) == entries


@cases(
    ("platform", "user", "form"),
    [
        ("whatsapp", "+15551234567", "15551234567"),
        ("whatsapp", "15551234567:12@s.whatsapp.net", "15551234567"),
        ("whatsapp_cloud", "15551234567@c.us", "15551234567"),
        ("whatsapp", "123456@lid", "123456@lid"),
        ("signal", "+15551234567", "+15551234567"),
        ("email", " Ann@Example.COM ", "ann@example.com"),
        ("matrix", "@Ann:example.org", "@Ann:example.org"),
        ("telegram", "15551234567@s.whatsapp.net", "15551234567@s.whatsapp.net"),
    ],
)
def test_canonical_id(platform: str, user: str, form: str) -> None:
    assert canonical_id(platform, user) == form
    assert canonical_id(platform, form) == form


def test_is_true() -> None:
    assert all(map(is_true, ["1", "true", "YES", " on "]))
    assert not any(map(is_true, ["", "0", "false", "no", "off", "maybe"]))
