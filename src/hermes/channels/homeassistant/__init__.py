"""Home Assistant: device changes arrive as messages, and answers are notifications."""

from msgspec import Struct

from hermes.ports.channel import ChannelCapabilities, ChannelManifest, ChannelSetup, SetupQuestion

EVENTS_CHAT = "ha_events"
"""The chat of all changes; posts to it are notifications in Home Assistant."""


class HomeAssistantOptions(Struct, frozen=True, kw_only=True):
    """The platform's own settings.

    `watch_domains` are kinds of devices, such as `light`; `watch_entities` and `ignore_entities`
    are single ones. Without any of them nothing is watched, unless `watch_all` is set. After a
    change, further changes of the same device are ignored for `cooldown_seconds`.
    """

    url: str = "http://homeassistant.local:8123"
    token: str = ""
    watch_domains: tuple[str, ...] = ()
    watch_entities: tuple[str, ...] = ()
    ignore_entities: tuple[str, ...] = ()
    watch_all: bool = False
    cooldown_seconds: float = 30.0
    proxy_url: str = ""


MANIFEST = ChannelManifest(
    name="homeassistant",
    label="Home Assistant",
    factory="hermes.channels.homeassistant.channel:open_channel",
    caps=ChannelCapabilities(max_text=4096, rate=10.0, chat_rate=5.0),
    enabled_by=("HASS_TOKEN",),
    account_option="url",
    options=HomeAssistantOptions,
    variables={"url": "HASS_URL", "token": "HASS_TOKEN", "proxy_url": "HASS_PROXY"},
    setup=ChannelSetup(
        check="hermes.channels.homeassistant.setup:check_account",
        variable="HASS_TOKEN",
        questions=(
            SetupQuestion(
                "HASS_URL", "Address of Home Assistant", default="http://homeassistant.local:8123"
            ),
        ),
        steps=(
            "Open your profile in Home Assistant, then the page Security.",
            "Create a long-lived access token and copy it.",
        ),
        user_id="not needed: whatever Home Assistant reports is accepted",
    ),
)
