"""Variables of a platform and the options of its further accounts."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec import Struct, structs

from hermes.channels.discord import channel as discord
from hermes.channels.matrix import channel as matrix
from hermes.channels.signal import channel as signal
from hermes.channels.sms import channel as sms
from hermes.ports.channel import ChannelDeps
from support.channel_deps import new_deps

SIGNAL = {"account": "+491701234567"}
SMS = {
    "account_sid": "AC" + 32 * "0", "auth_token": "t", "phone_number": "+491701234567",
    "webhook_url": "https://hooks.example/sms",
}  # fmt: skip


@pytest.mark.parametrize(
    ("platform", "read", "option", "variable", "required"),
    [
        ("matrix", matrix.checked_options, "allowed_users", "MATRIX_ALLOWED_USERS", {}),
        ("matrix", matrix.checked_options, "allow_all_users", "MATRIX_ALLOW_ALL_USERS", {}),
        ("discord", discord.checked_options, "allowed_roles", "DISCORD_ALLOWED_ROLES", {}),
        (
            *("signal", signal.checked_options),
            *("group_allow_from", "SIGNAL_GROUP_ALLOWED_USERS", SIGNAL),
        ),
        (
            *("sms", sms.checked_options),
            *("insecure_no_signature", "SMS_INSECURE_NO_SIGNATURE", SMS),
        ),
    ],
)
def test_variable_that_admits_people_is_for_the_first_account(
    platform: str,
    read: Callable[[ChannelDeps], Struct],
    option: str,
    variable: str,
    required: Mapping[str, object],
    tmp_path: Path,
) -> None:
    deps = new_deps(platform, tmp_path, extra=required, env={variable: "true"})
    assert getattr(read(deps), option)
    assert not getattr(read(structs.replace(deps, account="work")), option)


def test_setting_of_an_account_takes_precedence_over_a_variable(tmp_path: Path) -> None:
    env = {"DISCORD_REQUIRE_MENTION": "false", "DISCORD_PROXY": "http://127.0.0.1:1"}
    deps = new_deps("discord", tmp_path, extra={"require_mention": True}, env=env)
    assert not discord.checked_options(deps).require_mention
    work = discord.checked_options(structs.replace(deps, account="work"))
    assert (work.require_mention, work.proxy_url) == (True, "http://127.0.0.1:1")
