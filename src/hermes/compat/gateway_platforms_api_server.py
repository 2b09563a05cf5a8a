"""`gateway.platforms.api_server`: bind an HTTP request to its session."""

from hermes.api.turn_gate import SOURCE
from hermes.compat.gateway_platforms_base import BasePlatformAdapter
from hermes.session.session_context import Tokens, set_session_vars


class APIServerAdapter(BasePlatformAdapter):
    """An API request has no async delivery, because its client is gone after the answer."""

    supports_async_delivery: bool = False

    @classmethod
    def _bind_api_server_session(
        cls, chat_id: str = "", session_key: str = "", session_id: str = ""
    ) -> Tokens:
        """Bind the session variables; async delivery cannot be enabled by callers."""
        return set_session_vars(
            platform=SOURCE,
            chat_id=chat_id,
            session_key=session_key,
            session_id=session_id,
            async_delivery=cls.supports_async_delivery,
        )
