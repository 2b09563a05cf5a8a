"""A conversation with every kind of content, to be encoded in every wire format."""

from msgspec import Raw, structs

from hermes.models.providers import ModelProfile, ServedModel
from hermes.ports.model import ModelRequest
from hermes.schema.messages import (
    Assistant,
    Media,
    Reasoning,
    Result,
    Stop,
    Text,
    ToolCall,
    User,
)
from hermes.schema.tools import ToolSpec

LOOK_TOOL = ToolSpec(
    "look",
    "Look at a place.",
    {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
)
INLINE_IMAGE = Media("d1", "image/png", "shot.png")
LINKED_IMAGE = Media("d2", "image/x-url", "far.png")
MISSING_IMAGE = Media("d3", "image/png", "lost.png")
DOCUMENT = Media("d4", "application/pdf", "a.pdf")
IMAGE_URLS = {"d1": "data:image/png;base64,AAAA", "d2": "https://pictures.example/far.png"}


def sample_request(
    signature: str | None, provider: str = "acme", model: str = "m-1"
) -> ModelRequest:
    answer = Assistant(
        "a1",
        (
            Reasoning("hm", signature),
            Text("Looking."),
            ToolCall("call_1", "look", Raw(b'{"at":  "x"}')),
            ToolCall("call:2/b", "look", Raw(b"{}"), broken='{"at": '),
        ),
        Stop.TOOLS,
        provider=provider,
        model=model,
    )
    return ModelRequest(
        "Be brief.",
        [
            User(
                "u1", (Text("What is this?"), INLINE_IMAGE, LINKED_IMAGE, MISSING_IMAGE, DOCUMENT)
            ),
            answer,
            Result("r1", "call_1", (Text("seen:"), INLINE_IMAGE)),
            Result("r2", "call:2/b", (Text("broken arguments"),), failed=True),
            User("u2", (Text("and now?"),)),
        ],
        [LOOK_TOOL],
        max_output=20_000,
        effort="high",
    )


def sample_model(profile: ModelProfile | None = None, **more) -> ServedModel:
    model_info = ServedModel(
        model="m-1", provider="acme", window=1000, profile=profile or ModelProfile()
    )
    return structs.replace(model_info, **more)
