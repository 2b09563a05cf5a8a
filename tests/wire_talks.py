"""One conversation with everything in it, for every wire to write in its own words."""

from msgspec import Raw, structs

from hermes.models.driver import Served
from hermes.models.profile import Profile
from hermes.ports.model import Request
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

LOOK = ToolSpec(
    "look",
    "Look at a place.",
    {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
)
PHOTO = Media("d1", "image/png", "shot.png")
LINKED = Media("d2", "image/x-url", "far.png")
LOST = Media("d3", "image/png", "lost.png")
PAPER = Media("d4", "application/pdf", "a.pdf")
URLS = {"d1": "data:image/png;base64,AAAA", "d2": "https://pictures.example/far.png"}


def talk(seal: str | None, provider: str = "acme", model: str = "m-1") -> Request:
    answer = Assistant(
        "a1",
        (
            Reasoning("hm", seal),
            Text("Looking."),
            ToolCall("call_1", "look", Raw(b'{"at":  "x"}')),
            ToolCall("call:2/b", "look", Raw(b"{}"), broken='{"at": '),
        ),
        Stop.TOOLS,
        provider=provider,
        model=model,
    )
    return Request(
        "Be brief.",
        [
            User("u1", (Text("What is this?"), PHOTO, LINKED, LOST, PAPER)),
            answer,
            Result("r1", "call_1", (Text("seen:"), PHOTO)),
            Result("r2", "call:2/b", (Text("broken arguments"),), failed=True),
            User("u2", (Text("and now?"),)),
        ],
        [LOOK],
        max_output=20_000,
        effort="high",
    )


def served(profile: Profile | None = None, **more) -> Served:
    known = Served(model="m-1", provider="acme", window=1000, profile=profile or Profile())
    return structs.replace(known, **more)
