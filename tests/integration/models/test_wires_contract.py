"""Every wire fulfils the model contract."""

import pytest

from emulators.fake_provider.anthropic import AnthropicDialect
from emulators.fake_provider.gemini import GeminiDialect
from emulators.fake_provider.openai import ChatDialect, ResponsesDialect
from emulators.fake_provider.wire_rig import WireRig
from hermes.models.wire.anthropic_messages import AnthropicWire
from hermes.models.wire.chat_completions import ChatWire
from hermes.models.wire.gemini_native import GeminiWire
from hermes.models.wire.openai_responses import ResponsesWire
from hermes.testing.contracts.model import ModelContract


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
