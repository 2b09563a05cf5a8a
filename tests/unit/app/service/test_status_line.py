"""The status line of a gateway."""

from hermes.app.service.main import status_line
from hermes.app.service.status import PlatformState, Snapshot


def test_fatal_platform_is_shown_with_its_reason() -> None:
    platforms = {
        "webhook": PlatformState(state="connected"),
        "slack": PlatformState(state="retrying", error_message="no route to host"),
        "telegram": PlatformState(
            state="fatal", error_code="not_opened", error_message="The token\nis missing."
        ),
        "discord": PlatformState(state="fatal"),
    }
    assert status_line(Snapshot(platforms=platforms, served_profiles=("default", "work"))) == (
        "serving default, work; retrying: slack; fatal: discord, telegram (The token is missing.)"
    )
