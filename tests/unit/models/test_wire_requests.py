"""Encoding of requests for each wire, beyond the usual conversation."""

import json
from typing import Any

import pytest
from inline_snapshot import snapshot
from msgspec import Raw, structs

from hermes.models.catalog import with_model_features
from hermes.models.providers import EffortFormat, ModelProfile
from hermes.models.urls import ANTHROPIC, GEMINI, RESPONSES, anthropic_headers
from hermes.models.wire.anthropic_messages import AnthropicWire
from hermes.models.wire.gemini_native import GeminiWire
from hermes.models.wire.openai_responses import ResponsesWire
from hermes.ports.model import ModelRequest, OutputConstraints
from hermes.schema.messages import Assistant, Reasoning, Result, Stop, Text, ToolCall, User
from support.wire_samples import IMAGE_URLS, LOOK_TOOL, sample_model, sample_request

ASK = User("u1", (Text("hello"),))
SIGNATURES = {
    AnthropicWire: '{"type":"thinking","signature":"sig-1"}',
    ResponsesWire: '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"sig-1"}',
    GeminiWire: '{"thought_signature":"sig-1"}',
}


def body(make: Any, request: ModelRequest, profile: ModelProfile | None = None, **more: Any) -> Any:
    return json.loads(make(sample_model(profile, **more)).body(request, IMAGE_URLS))


@pytest.mark.parametrize("make", SIGNATURES, ids=lambda make: make.__name__)
class TestSignatures:
    def thought(self, make: Any, **who: str) -> ModelRequest:
        text = "" if make is GeminiWire else "hm"
        call = ToolCall("c1", "look", Raw(b"{}"))
        answer = Assistant("a1", (Reasoning(text, SIGNATURES[make]), call), Stop.TOOLS)
        answer = structs.replace(answer, **({"provider": "acme", "model": "m-1"} | who))
        return ModelRequest("", [ASK, answer, Result("r1", "c1", (Text("x"),))], [LOOK_TOOL])

    def test_sent_back_to_their_model(self, make: Any):
        assert "sig-1" in json.dumps(body(make, self.thought(make)))

    @pytest.mark.parametrize("who", [{"provider": "other"}, {"model": "m-2"}, {"model": ""}])
    def test_not_sent_to_other_models(self, make: Any, who: dict[str, str]):
        written = json.dumps(body(make, self.thought(make, **who)))
        assert "sig-1" not in written
        assert "hm" not in written

    @pytest.mark.parametrize("signature", [None, "", "not json", "[]", '{"type":"x"}', "[" * 9999])
    def test_invalid_signature_is_omitted(self, make: Any, signature: str | None):
        request = self.thought(make)
        odd = structs.replace(request.messages[1], parts=(Reasoning("hm", signature), Text("ok")))
        whole = body(make, ModelRequest("", [ASK, odd]))
        assert "hm" not in json.dumps(whole)
        assert "ok" in json.dumps(whole)


class TestAnthropic:
    def test_minimal_request(self):
        assert body(AnthropicWire, ModelRequest("", [ASK])) == snapshot(
            {
                "model": "m-1",
                "max_tokens": 32000,
                "stream": True,
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "text",
                                "text": "hello",
                                "cache_control": {"type": "ephemeral"},
                            }
                        ],
                    }
                ],
            }
        )

    def test_cache_markers(self):
        talked = [
            message
            for number in range(4)
            for message in (
                User(f"u{number}", (Text(f"say {number}"),)),
                Assistant(f"a{number}", (Text(f"said {number}"),), Stop.END),
            )
        ]
        whole = body(AnthropicWire, ModelRequest("Be brief.", [*talked, ASK]), cache_ttl="1h")
        marked = [
            [block.get("cache_control") for block in one["content"]] for one in whole["messages"]
        ]
        hour = {"type": "ephemeral", "ttl": "1h"}
        assert whole["system"][0]["cache_control"] == hour
        assert marked == [[None]] * 6 + [[hour]] * 3

    def test_message_without_cacheable_blocks_is_skipped(self):
        hidden = '{"type":"redacted_thinking","data":"D"}'
        silent = Assistant(
            "a1", (Reasoning("", hidden),), Stop.LENGTH, provider="acme", model="m-1"
        )
        talked = [ASK, silent, User("u2", (Text("two"),)), silent, User("u3", (Text("three"),))]
        whole = body(AnthropicWire, ModelRequest("", talked))
        marks = ["cache_control" in one["content"][-1] for one in whole["messages"]]
        assert marks == [True, False, True, False, True]

    def test_blank_texts_and_empty_answers_are_omitted(self):
        silent = Assistant("a1", (Text(" \n"),), Stop.END)
        talked = [ASK, silent, User("u2", (Text(""), Text("more")))]
        assert [
            one["role"] for one in body(AnthropicWire, ModelRequest("", talked))["messages"]
        ] == ["user"]

    def test_conversation_starts_with_a_user_message(self):
        talked = [Assistant("a0", (Text("Where were we?"),), Stop.END), ASK]
        roles = [one["role"] for one in body(AnthropicWire, ModelRequest("", talked))["messages"]]
        assert roles == ["user", "assistant", "user"]

    @pytest.mark.parametrize(
        ("calling", "choice"),
        [
            (OutputConstraints(), None),
            (OutputConstraints(single=True), {"type": "auto", "disable_parallel_tool_use": True}),
            (OutputConstraints(required=True), {"type": "any"}),
            (OutputConstraints(name="look"), {"type": "tool", "name": "look"}),
        ],
    )
    def test_tool_choice(self, calling: OutputConstraints, choice: Any):
        request = ModelRequest("", [ASK], [LOOK_TOOL], effort="high", constraints=calling)
        whole = body(AnthropicWire, request, ModelProfile(effort=EffortFormat.BUDGET))
        assert whole.get("tool_choice") == choice
        assert ("thinking" in whole) == (not calling.required and not calling.name)

    @pytest.mark.parametrize(
        ("model", "effort", "wanted"),
        [
            ("claude-sonnet-4-5", "low", {"type": "enabled", "budget_tokens": 4096}),
            ("claude-opus-4-1", "max", {"type": "enabled", "budget_tokens": 32000}),
            ("claude-opus-5-5", "high", {"type": "adaptive", "display": "summarized"}),
            ("claude-opus-5-5", "none", None),
            ("claude-3-5-haiku", "high", None),
            ("MiniMax-M2", "high", None),
        ],
    )
    def test_thinking_settings(self, model: str, effort: str, wanted: Any):
        profile = with_model_features(ModelProfile(), ANTHROPIC, model)
        whole = body(AnthropicWire, ModelRequest("", [ASK], effort=effort), profile, max_output=100)
        assert whole.get("thinking") == wanted
        if wanted and "budget_tokens" in wanted:
            assert whole["max_tokens"] > wanted["budget_tokens"]

    def test_unsupported_effort_is_mapped(self):
        profile = with_model_features(ModelProfile(), ANTHROPIC, "claude-sonnet-4-6")
        whole = body(AnthropicWire, ModelRequest("", [ASK], effort="xhigh"), profile)
        assert whole["output_config"] == {"effort": "high"}

    def test_turn_of_another_model_continues_without_thinking(self):
        profile = ModelProfile(effort=EffortFormat.BUDGET)
        begun = sample_request(None, provider="other")
        going_on = structs.replace(begun, messages=begun.messages[:-1])
        assert "thinking" not in body(AnthropicWire, going_on, profile)
        assert "thinking" in body(AnthropicWire, begun, profile)

    def test_headers(self):
        home, away = "https://api.anthropic.com/v1", "https://api.minimax.io/anthropic"
        assert anthropic_headers("k", home) == {"anthropic-version": "2026-10-21", "x-api-key": "k"}
        assert anthropic_headers("", away) == {"anthropic-version": "2023-06-01"}
        assert anthropic_headers("sk-ant-oat01-x", home, ("b",)) == {
            "anthropic-version": "2026-10-21",
            "authorization": "Bearer sk-ant-oat01-x",
            "anthropic-beta": "b,oauth-2025-04-20",
        }
        wire = AnthropicWire(sample_model())
        assert [wire.path(home), wire.path(away)] == ["/messages", "/v1/messages"]


class TestResponses:
    def test_minimal_request(self):
        assert body(ResponsesWire, ModelRequest("", [ASK])) == snapshot(
            {
                "model": "m-1",
                "stream": True,
                "store": False,
                "prompt_cache_key": "u1",
                "input": [{"role": "user", "content": "hello"}],
            }
        )

    def test_reasoning_without_a_following_item_is_omitted(self):
        alone = Assistant(
            "a1",
            (Text("ok"), Reasoning("hm", SIGNATURES[ResponsesWire])),
            Stop.LENGTH,
            provider="acme",
            model="m-1",
        )
        whole = body(ResponsesWire, ModelRequest("", [ASK, alone, ASK]))
        assert [one.get("type", one.get("role")) for one in whole["input"]] == [
            "user",
            "assistant",
            "user",
        ]

    @pytest.mark.parametrize(
        ("model", "effort", "wanted"),
        [
            ("gpt-5", "xhigh", {"effort": "high", "summary": "auto"}),
            ("gpt-5.1", "none", {"effort": "none", "summary": "auto"}),
            ("gpt-5.2", "max", {"effort": "xhigh", "summary": "auto"}),
            ("gpt-5-pro", "low", {"effort": "high", "summary": "auto"}),
            ("o3", None, {"summary": "auto"}),
            ("gpt-4.1", "high", None),
        ],
    )
    def test_thinking_settings(self, model: str, effort: str | None, wanted: Any):
        profile = with_model_features(ModelProfile(), RESPONSES, model)
        whole = body(ResponsesWire, ModelRequest("", [ASK], effort=effort), profile)
        assert whole.get("reasoning") == wanted
        assert ("include" in whole) == (wanted is not None)

    @pytest.mark.parametrize(
        ("calling", "wanted"),
        [
            (OutputConstraints(), {}),
            (OutputConstraints(required=True, single=True), {"tool_choice": "required"}),
            (OutputConstraints(name="look"), {"tool_choice": {"type": "function", "name": "look"}}),
        ],
    )
    def test_tool_choice(self, calling: OutputConstraints, wanted: Any):
        whole = body(ResponsesWire, ModelRequest("", [ASK], [LOOK_TOOL], constraints=calling))
        assert {name: whole[name] for name in ("tool_choice",) if name in whole} == wanted
        assert whole.get("parallel_tool_calls", True) is not calling.single


class TestGemini:
    def test_minimal_request(self):
        assert body(GeminiWire, ModelRequest("", [ASK])) == snapshot(
            {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
        )

    def test_signature_keeps_its_position(self):
        parts = (
            Reasoning("", SIGNATURES[GeminiWire]),
            ToolCall("c1", "look", Raw(b"{}")),
            ToolCall("c2", "look", Raw(b"{}")),
        )
        answer = Assistant("a1", parts, Stop.TOOLS, provider="acme", model="m-1")
        (_, model) = body(GeminiWire, ModelRequest("", [ASK, answer]))["contents"]
        assert [part.get("thoughtSignature") for part in model["parts"]] == ["sig-1", None]

    def test_calls_of_other_models_get_a_skip_signature(self):
        profile = with_model_features(ModelProfile(), GEMINI, "gemini-3-pro")
        model = body(GeminiWire, sample_request(None, provider="other"), profile)["contents"][1]
        assert [part.get("thoughtSignature") for part in model["parts"]] == [
            None,
            "skip_thought_signature_validator",
            None,
        ]

    @pytest.mark.parametrize(
        ("model", "effort", "wanted"),
        [
            ("gemini-2.5-flash", "none", {"includeThoughts": False, "thinkingBudget": 0}),
            ("gemini-2.5-pro", "none", {"includeThoughts": True, "thinkingBudget": 128}),
            ("gemini-3-pro-preview", "max", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
            ("gemini-3-flash", "minimal", {"includeThoughts": True, "thinkingLevel": "MINIMAL"}),
            ("gemini-2.0-flash", "high", None),
        ],
    )
    def test_thinking_settings(self, model: str, effort: str, wanted: Any):
        profile = with_model_features(ModelProfile(), GEMINI, model)
        whole = body(GeminiWire, ModelRequest("", [ASK], effort=effort), profile)
        assert whole.get("generationConfig", {}).get("thinkingConfig") == wanted

    def test_tool_choice(self):
        request = ModelRequest("", [ASK], [LOOK_TOOL], constraints=OutputConstraints(name="look"))
        assert body(GeminiWire, request)["toolConfig"] == {
            "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}
        }

    def test_paths(self):
        wire = GeminiWire(sample_model(model="models/gemini 3"))
        tail = "/models/gemini%203:streamGenerateContent?alt=sse"
        assert wire.path("https://g.example") == f"/v1{tail}"
        assert wire.path("https://g.example/v1beta") == tail
