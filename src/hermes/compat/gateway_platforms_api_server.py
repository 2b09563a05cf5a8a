"""`gateway.platforms.api_server`: how a request over HTTP is bound to its session."""

from hermes.api.turn_gate import SOURCE
from hermes.compat.gateway_platforms_base import BasePlatformAdapter
from hermes.session.session_context import Tokens, set_session_vars


class APIServerAdapter(BasePlatformAdapter):
    """Whoever asked is gone when the answer is out: nothing can be delivered later."""

    supports_async_delivery: bool = False

    @classmethod
    def _bind_api_server_session(
        cls, chat_id: str = "", session_key: str = "", session_id: str = ""
    ) -> Tokens:
        """The one way in; no caller can promise what this channel cannot keep."""
        return set_session_vars(
            platform=SOURCE,
            chat_id=chat_id,
            session_key=session_key,
            session_id=session_id,
            async_delivery=cls.supports_async_delivery,
        )
