"""Generated requests to every route: whatever they are, the server does not break."""

from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from api_house import house

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool", "other"])
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "input_image", "file"]) | JSON},
    optional={"text": SCALARS, "image_url": JSON},
)
CALLS = st.fixed_dictionaries(
    {"id": st.sampled_from(["c1", "c2", ""]), "type": st.just("function")},
    optional={"function": st.fixed_dictionaries({"name": st.text(), "arguments": st.text()})},
)
MESSAGES = st.fixed_dictionaries(
    {"role": ROLES},
    optional={
        "content": st.text() | st.none() | st.lists(PARTS | JSON, max_size=3),
        "tool_calls": st.lists(CALLS, max_size=2) | JSON,
        "tool_call_id": st.sampled_from(["c1", "c2"]) | JSON,
    },
)
BODIES = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGES, max_size=4)},
    optional={
        "model": st.sampled_from(["hermes-agent", "nobody"]) | JSON,
        "stream": st.booleans() | JSON,
        "stream_options": JSON,
        "tools": JSON,
        "tool_choice": st.sampled_from(["none", "auto", "required"]) | JSON,
        "n": JSON,
    },
)


@pytest.mark.parametrize("count", [800])
def test_no_request_breaks_the_server(tmp_path: Path, count: int) -> None:
    examples: list[tuple[int, bytes, bool]] = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        deadline=None,
    )
    @given(st.integers(0, 1000), BODIES | JSON, st.binary(max_size=40), st.booleans())
    def collect(route: int, body: object, raw: bytes, is_raw: bool) -> None:
        examples.append((route, raw if is_raw else msgspec.json.encode(body), is_raw))

    collect()
    anyio.run(_send_all, tmp_path, examples)


async def _send_all(folder: Path, examples: list[tuple[int, bytes, bool]]) -> None:
    async with house(folder) as one:
        routes = [route for route in one.server.routes if not route.path.endswith("/events")]
        for number, body, is_raw in examples:
            route = routes[number % len(routes)]
            path = "/".join(
                "x1" if part.startswith("{") else part for part in route.path.split("/")
            )
            told = await one.ask(route.method, path, body)
            assert told.status < 500, (route.path, body, told)
            if told.status >= 400:
                assert told.code
            if not is_raw:
                told = await one.ask("POST", "/v1/chat/completions", body)
                assert told.status < 500, (body, told)
