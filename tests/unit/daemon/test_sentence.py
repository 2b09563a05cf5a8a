"""The one line that says how a gateway is, to whoever starts it or looks at its unit."""

from hermes.app.service.main import status_line
from hermes.app.service.status import PlatformState, Snapshot


def test_what_does_not_mend_itself_is_told_with_its_reason() -> None:
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
