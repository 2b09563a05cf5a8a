"""Errors of the provider reach the client by class, and leave neither sessions nor extra calls."""

from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from hermes.api.errors import turn_error
from hermes.schema.messages import text_of
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.api_server import ApiHarness, ApiResponse, api_harness


def refusing(name: str, **headers: str) -> Reply:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(fault=Fault("status", named=name, headers=sent))


# Short waits: the rules of the retries themselves are tested with the models.
LIMITED = refusing("rate_limited", retry_after_ms="100")
LIMITED_FOR_LONG = refusing("rate_limited", retry_after="70")
CLASSES = {
    "rate limited": (LIMITED_FOR_LONG, 429, "rate_limit_exceeded"),
    "no credit": (refusing("out_of_credit"), 402, "insufficient_quota"),
    "too long": (refusing("context_too_long"), 400, "context_length_exceeded"),
    "refused": (refusing("policy"), 400, "content_policy_violation"),
    "bad request": (refusing("bad_request"), 400, "provider_rejected_request"),
    "no model": (refusing("model_not_found"), 404, "model_not_found"),
    "wrong key": (refusing("unauthorized"), 502, "provider_auth"),
    "overloaded": (refusing("overloaded", retry_after="70"), 503, "provider_unavailable"),
}
SCRIPT = Script(
    rules=[
        Rule("often", [LIMITED]),
        Rule("act", [Reply("", [Call("todo", {})]), LIMITED_FOR_LONG]),
        *(Rule(words, [reply]) for words, (reply, _, _) in CLASSES.items()),
    ],
    default=Reply("Hello."),
)
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


async def ask(
    harness: ApiHarness, path: str, words: str, *, stream: bool = False, **headers: str
) -> ApiResponse:
    messages = [{"role": "user", "content": words}]
    body: dict[str, Any] = {"messages": messages} if path == CHAT else {"input": words}
    data = msgspec.json.encode({**body, "stream": stream})
    return await harness.ask("POST", path, data, **headers)


@pytest.mark.parametrize(
    ("code", "status"), [("timeout", 504), ("network", 502), ("internal", 502), ("model", 502)]
)
def test_errors_of_the_connection_have_a_status(code: str, status: int) -> None:
    assert turn_error(code, "No answer.").status == status


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
@pytest.mark.parametrize("stream", [False, True])
async def test_error_has_the_status_of_its_class(tmp_path: Path, path: str, stream: bool) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        for words, (_, status, code) in CLASSES.items():
            response = await ask(harness, path, words, stream=stream)
            assert (response.status, response.code) == (status, code), words
            assert ("retry-after" in response.headers) == (words in {"rate limited", "overloaded"})
            assert "x-hermes-session-id" not in response.headers
        assert await harness.sessions() == []


async def test_rate_limit_is_passed_on_with_its_time(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        client = harness.client().with_options(max_retries=2)
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(
                model="hermes-agent", messages=[{"role": "user", "content": "often"}]
            )
        assert caught.value.response.headers["retry-after"] == "1"
        assert await harness.sessions() == []
        # Three tries for the first request; its two repetitions add one each.
        assert len(harness.model_server.requests) == 5


async def test_history_of_a_failed_request_is_not_kept(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        messages = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
            {"role": "user", "content": "no credit"},
        ]
        assert (await harness.chat({"messages": messages})).status == 402
        assert await harness.sessions() == []


async def test_failed_turn_of_a_named_session_is_kept(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        for path in (CHAT, RESPONSES):
            response = await ask(harness, path, "no credit", X_Hermes_Session_Id="mine")
            assert response.headers["x-hermes-session-id"] == "mine"
        assert [text_of(one) for one in await harness.messages("mine")] == ["no credit"] * 2


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_turn_that_has_acted_is_kept_and_not_repeated(tmp_path: Path, path: str) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        response = await ask(harness, path, "act")
        assert (response.status, response.headers["x-should-retry"]) == (429, "false")
        (kept,) = await harness.sessions()
        assert response.headers["x-hermes-session-id"] == kept.session.id
