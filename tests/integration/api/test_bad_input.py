"""Invalid requests get a 4xx error in our format, and nothing is stored."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes.api.settings import ModelRoute
from support.api_server import api_harness, api_settings

HI = {"role": "user", "content": "hi"}
CHAT = "/v1/chat/completions"
DEEP = b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
FUNCTION: dict[str, Any] = {"type": "function", "function": {"name": "a", "parameters": {}}}


def user(*parts: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def image(url: object) -> dict[str, object]:
    return user({"type": "image_url", "image_url": {"url": url}})


BODIES: list[Any] = [
    {},
    [],
    "words",
    7,
    None,
    {"messages": "hi"},
    {"messages": []},
    {"messages": [7]},
    {"messages": [{}]},
    {"messages": [{"role": "nobody", "content": "hi"}]},
    {"messages": [{"role": "user"}]},
    {"messages": [{"role": "user", "content": ""}]},
    {"messages": [{"role": "user", "content": 7}]},
    {"messages": [{"role": "user", "content": {"type": "text"}}]},
    {"messages": [{"role": "system", "content": "only this"}]},
    {"messages": [HI, {"role": "assistant", "content": "the last word"}]},
    {"messages": [{"role": "tool", "content": "no call"}]},
    {"messages": [{"role": "tool", "tool_call_id": "c1", "content": "nobody called"}]},
    {"messages": [HI, {"role": "assistant", "tool_calls": [{"id": "c"}]}]},
    {"messages": [HI], "stream": "yes"},
    {"messages": [HI], "model": 7},
    {"messages": [HI], "n": 2},
    {"messages": [HI], "tools": "all"},
    {"messages": [HI], "tools": [{"type": "function"}]},
    {"messages": [HI], "tools": [{"type": "function", "function": {"name": "a b"}}]},
    {"messages": [HI], "tools": [{"type": "function", "function": {"name": "a" * 65}}]},
    {"messages": [HI], "tools": [FUNCTION, FUNCTION]},
    {"messages": [HI], "tools": [FUNCTION] * 129},
    {"messages": [HI], "tool_choice": "sometimes"},
    {"messages": [HI], "tool_choice": {"type": "function", "function": {"name": "b"}}},
    user({"type": "text"}),
    user({"type": "text", "text": 7}),
    user({"text": "no type"}),
    user({"type": "file"}),
    user({"type": "file", "file": {"file_id": "file-1"}}),
    user({"type": "input_file", "file_url": "https://example.com/a.pdf"}),
    user({"type": "file", "file": {"file_data": 7}}),
    user({"type": "file", "file": {"file_data": "data:text/plain;base64,!!!"}}),
    user({"type": "file", "file": {"file_data": "data:text/plain"}}),
    user({"type": "file", "file": {"file_data": "AAECAwD/"}}),
    user({"type": "file", "file": {"file_data": "JVBERi0xLjcgYnJva2Vu"}}),
    user({"type": "input_audio", "input_audio": {}}),
    user(*[{"type": "text", "text": "a"}] * 1001),
    user({"type": "image_url"}),
    image(""),
    image(7),
    image("file:///etc/passwd"),
    image("http://169.254.169.254/latest"),
    image("http://[::ffff:10.0.0.1]/a.png"),
    image("http://2130706433/a.png"),
    image("http://0x7f.1/a.png"),
    image("http://localhost/a.png"),
    image("http://router.lan/a.png"),
    image("https://user:secret@example.com/a.png"),
    image("https://example.com/a b.png"),
    image("https://example.com:99999/a.png"),
    image("ftp://example.com/a.png"),
    image("https://example.com/" + "a" * 2_000),
    image("data:image/png,notbase64"),
    image("data:image/png;base64,!!!"),
    image("data:image/png;base64,aGVsbG8="),
]
RAW = [b"", b"   ", b"{", b"\xff\xfe", b'{"messages": [', b'{"a":1} trailing', b"NaN", DEEP]


@pytest.mark.parametrize("stream", [False, True])
async def test_invalid_body_is_rejected(tmp_path: Path, stream: bool) -> None:
    async with api_harness(tmp_path) as harness:
        for body in BODIES:
            sent: Any = {"stream": stream, **body} if hasattr(body, "keys") else body
            response = await harness.chat(sent)
            assert response.status == 400, (body, response)
            assert response.code
        for raw in RAW:
            response = await harness.ask("POST", CHAT, raw)
            assert response.status == 400, raw
        assert (await harness.ask("POST", CHAT, b"{}", Content_Encoding="gzip")).status == 415
        assert await harness.sessions() == []
        assert harness.model_server.requests == []


@pytest.mark.parametrize("name", ["X-Hermes-Session-Id", "X-Hermes-Session-Key"])
async def test_invalid_header_is_rejected(tmp_path: Path, name: str) -> None:
    async with api_harness(tmp_path) as harness:
        for value in ("../../etc", "a/b", "a" * 257, "a\tb", "ü", "-x", "a..b"):
            response = await harness.chat({"messages": [HI]}, **{name: value})
            assert (response.status, response.code) == (400, "invalid_session_id"), value
        # An empty key would give a false sense of safety.
        empty = await harness.chat({"messages": [HI]}, Idempotency_Key="")
        assert (empty.status, empty.code) == (400, "invalid_idempotency_key")
        response = await harness.chat({"messages": [HI]}, Idempotency_Key="k" * 257)
        assert (response.status, response.code) == (400, "invalid_idempotency_key")
        assert await harness.sessions() == []


async def test_unusual_valid_request_is_answered(tmp_path: Path) -> None:
    """Unusual but valid requests get an answer."""
    async with api_harness(tmp_path) as harness:
        for body in (
            {"messages": [HI], "temperature": 0.1, "unknown": {"a": [1]}, "stream": None},
            {"messages": [{"role": "user", "content": "null \0 byte"}]},
            {"messages": [{"role": "user", "content": "😀" * 1000}]},
            {"messages": [{"role": "developer", "content": "be brief"}, HI]},
            {"messages": [{"role": "assistant", "content": "Welcome."}, HI]},
            {"messages": [HI, HI, HI]},
            {"messages": [HI], "tools": [], "tool_choice": "none"},
            {"messages": [HI], "tools": [{"type": "function", "function": {"name": "read_file"}}]},
        ):
            response = await harness.chat(body)
            assert response.status == 200, (body, response)
        raw = b'{"messages":[{"role":"user","content":"\\ud800 alone"}]}'
        assert (await harness.ask("POST", CHAT, raw)).status in {200, 400}


async def test_model_names(tmp_path: Path) -> None:
    routes = {"fast": ModelRoute(model="quick-model", provider="openai")}
    async with api_harness(
        tmp_path, settings=api_settings(model_routes=routes, model_name="Ada")
    ) as harness:
        names = [card["id"] for card in (await harness.ask("GET", "/v1/models")).json["data"]]
        assert names == ["Ada", "fast"]
        for name in ("Ada", "hermes-agent", "default", None):
            assert (await harness.chat({"messages": [HI], "model": name})).status == 200
            assert harness.model_server.requests[-1].json["model"] == "mock-model"
        response = await harness.chat({"messages": [HI], "model": "fast"})
        assert response.json["model"] == "fast"
        assert harness.model_server.requests[-1].json["model"] == "quick-model"


async def test_openapi_document_describes_all_routes(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as harness:
        document = (await harness.ask("GET", "/openapi.json")).json
        assert document["openapi"] == "3.1.0"
        paths = document["paths"]
        for route in harness.server.routes:
            assert route.method.lower() in paths[route.path]
        schemas: dict[str, Any] = document["components"]["schemas"]
        assert "ChatRequest" in schemas
        references = msgspec.json.encode(document).decode().split('"#/components/schemas/')[1:]
        assert {one.split('"')[0] for one in references} <= schemas.keys()


async def test_capabilities_and_catalog(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as harness:
        await harness.chat({"messages": [HI]})
        detailed = (await harness.ask("GET", "/health/detailed")).json
        assert (detailed["status"], detailed["active_agents"]) == ("ok", 0)
        able = (await harness.ask("GET", "/v1/capabilities")).json
        assert able["object"] == "hermes.api_server.capabilities"
        own = harness.app.home.skills / "house" / "dusting" / "SKILL.md"
        own.parent.mkdir(parents=True)
        own.write_text("---\nname: dusting\ndescription: How to dust.\n---\n\nTop first.\n")
        skills = {
            entry["name"]: entry for entry in (await harness.ask("GET", "/v1/skills")).json["data"]
        }
        assert skills["dusting"] == {
            "name": "dusting", "description": "How to dust.", "category": "house", "own": True,
        }  # fmt: skip
        sets = (await harness.ask("GET", "/v1/toolsets")).json["data"]
        assert {"file", "terminal", "todo"} <= {entry["name"] for entry in sets}
        metrics = (await harness.ask("GET", "/metrics")).body.decode()
        assert 'hermes_api_turns_total{profile="default",outcome="done"} 1\n' in metrics
        assert 'hermes_api_tokens_total{profile="default",kind="input"} 10\n' in metrics
