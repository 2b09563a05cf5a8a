"""What the writers of requests have in common, whatever language they write."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from hermes.models.profile import Profile
from hermes.models.wire.offered import Offered
from hermes.models.wire.optional import Optional
from hermes.models.wire.pictures import is_image
from hermes.models.wire.stream import AnswerStream, Urls
from hermes.ports.model import Request
from hermes.schema.messages import Assistant, Media, Message
from hermes.schema.tools import ToolSpec


class RequestCodec:
    """Writes the bodies for one model of one provider.

    `complaints` are what servers say of parts that can be left out, by their names.
    """

    complaints: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self,
        model: str,
        provider: str,
        profile: Profile,
        max_output: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = model
        self._provider = provider
        self._profile = profile
        self._max_output = max_output
        self._extra = dict(extra or {})
        self._optional = Optional(**self.complaints)
        self._offered = Offered(self._tool)
        self._encoder = msgspec.json.Encoder()

    def body(self, request: Request, images: Urls | None = None) -> bytes:
        raise NotImplementedError

    def pieces(self, request: Request, images: Urls | None = None) -> Sequence[bytes]:
        return [self.body(request, images)]

    def images_in(self, messages: Sequence[Message]) -> list[Media]:
        """The images whose bytes the body will need."""
        return [
            part
            for message in messages
            if not isinstance(message, Assistant)
            for part in message.parts
            if isinstance(part, Media) and self._shows(part)
        ]

    def learn(self, refusal: str) -> bool:
        """Whether what was refused can be left out; the next body is without it."""
        return self._optional.learn(refusal)

    def heard(self, request: Request, stream: AnswerStream, answer: Assistant) -> None:
        """Nothing of it is needed again."""

    @staticmethod
    def _tool(spec: ToolSpec) -> dict[str, Any]:
        """One tool as it is offered."""
        raise NotImplementedError

    def _shows(self, media: Media) -> bool:
        return self._profile.images and is_image(media)

    def _owns(self, answer: Assistant) -> bool:
        """Whether this very model gave it: only then it can read its seals again."""
        return (answer.provider, answer.model) == (self._provider, self._model)
