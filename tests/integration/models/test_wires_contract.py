"""Every wire keeps the contract of models."""

import pytest

from hermes.models.anthropic_messages import AnthropicWire
from hermes.models.chat_completions import ChatWire
from hermes.models.gemini_native import GeminiWire
from hermes.models.openai_responses import ResponsesWire
from hermes.testing.contracts.model import ModelContract
from hermes.testing.mock_anthropic import AnthropicDialect
from hermes.testing.mock_chat import ChatDialect
from hermes.testing.mock_gemini import GeminiDialect
from hermes.testing.mock_responses import ResponsesDialect
from hermes.testing.wires import WireRig


class TestAnthropic(ModelContract):
    @pytest.fixture
    def rig(self) -> WireRig:
        return WireRig(AnthropicDialect(), AnthropicWire)


class TestResponses(ModelContract):
    @pytest.fixture
    def rig(self) -> WireRig:
        return WireRig(ResponsesDialect(), ResponsesWire)


class TestGemini(ModelContract):
    @pytest.fixture
    def rig(self) -> WireRig:
        return WireRig(GeminiDialect(), GeminiWire)


class TestChatCompletions(ModelContract):
    @pytest.fixture
    def rig(self) -> WireRig:
        return WireRig(ChatDialect(), ChatWire)
