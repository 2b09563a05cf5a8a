"""The address of an IRC server may contain the port and say whether there is TLS."""

import re

import pytest

from hermes.channels.irc import CHANNELS, SERVER, IrcOptions
from hermes.channels.irc.channel import account_of
from hermes.schema.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "host", "port", "use_tls"),
    [
        ("irc.example", "irc.example", 6697, True),
        ("irc.example:7000", "irc.example", 7000, True),
        ("ircs://irc.example/", "irc.example", 6697, True),
        ("irc://irc.example", "irc.example", 6667, False),
        ("irc://127.0.0.1:6660", "127.0.0.1", 6660, False),
        ("[::1]:7000", "::1", 7000, True),
        ("::1", "::1", 6697, True),
    ],
)
def test_server_is_a_host_with_or_without_port(
    value: str, host: str, port: int, use_tls: bool
) -> None:
    server, _ = account_of(IrcOptions(server=value), "irc", {})
    assert (server.host, server.port, server.use_tls) == (host, port, use_tls)


def test_port_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="99999 is not a port"):
        account_of(IrcOptions(server="irc.example:99999"), "irc", {})


def test_password_is_not_sent_to_an_address_without_tls() -> None:
    options = IrcOptions(server="irc://irc.example", nickserv_password="secret")
    with pytest.raises(ConfigError, match="without encryption"):
        account_of(options, "irc", {})


@pytest.mark.parametrize("value", ["a b", "me@host", "http://host", "host:port", "host:1:2"])
def test_wrong_answer_is_not_a_server(value: str) -> None:
    assert re.fullmatch(SERVER, value) is None


@pytest.mark.parametrize(
    ("value", "valid"),
    [("#one", True), ("#one key, &two,#three", True), ("one", False), ("#one,two", False)],
)
def test_channels_begin_with_a_sign(value: str, valid: bool) -> None:
    assert bool(re.fullmatch(CHANNELS, value)) is valid
