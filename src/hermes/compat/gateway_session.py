"""`gateway.session`: session keys, by the public system's class."""

from pathlib import Path

from hermes.compat import hermes_cli_profiles
from hermes.compat.gateway_config import GatewayConfig
from hermes.session.keys import SessionSource, build_session_key

__all__ = ["SessionSource", "SessionStore", "build_session_key"]


class SessionStore:
    """Builds session keys according to the settings. Sessions are stored in `hermes.db`."""

    def __init__(self, sessions_dir: Path, config: GatewayConfig) -> None:
        self.sessions_dir = sessions_dir
        self.config = config
        self._ensure_loaded()

    def _ensure_loaded(self) -> None:
        """There is no index to load."""

    def _generate_session_key(self, source: SessionSource) -> str:
        return build_session_key(
            source,
            group_sessions_per_user=self.config.group_sessions_per_user,
            thread_sessions_per_user=self.config.thread_sessions_per_user,
            profile=self._resolve_profile_for_key(),
        )

    def _resolve_profile_for_key(self) -> str | None:
        """None keeps the key format without profiles."""
        if not self.config.multiplex_profiles:
            return None
        return hermes_cli_profiles.get_active_profile_name()
