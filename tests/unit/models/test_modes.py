"""Which language is spoken with whom, and what is known of models there."""

import pytest

from hermes.models.modes import ANTHROPIC, CHAT, GEMINI, RESPONSES
from hermes.models.profile import EffortForm
from hermes.models.profiles import able
from hermes.models.providers import PROVIDERS, profile_for, provider_named
from hermes.models.resolve import Target, resolve
from hermes.models.settings import CustomProvider, Fallback, Flags, ModelSettings
from hermes.models.told_keys import told_keys

KEYS = {f"{name}_API_KEY": "k" for name in ("OPENAI", "ANTHROPIC", "GEMINI", "XAI", "GROQ")}


def target(settings: ModelSettings, env: dict[str, str] | None = None, **flags: str) -> Target:
    return resolve(settings, (KEYS | (env or {})).get, Flags(**flags)).primary


@pytest.mark.parametrize(
    ("provider", "env", "mode", "url"),
    [
        ("openai", {}, RESPONSES, "https://api.openai.com/v1"),
        ("xai", {}, RESPONSES, "https://api.x.ai/v1"),
        ("anthropic", {}, ANTHROPIC, "https://api.anthropic.com/v1"),
        ("gemini", {}, GEMINI, "https://generativelanguage.googleapis.com"),
        ("groq", {}, CHAT, "https://api.groq.com/openai/v1"),
        ("openai", {"OPENAI_BASE_URL": "https://proxy.example/v1"}, CHAT, None),
        ("anthropic", {"ANTHROPIC_BASE_URL": "https://proxy.example"}, ANTHROPIC, None),
        ("xai", {"XAI_BASE_URL": "https://api.minimax.io/anthropic"}, ANTHROPIC, None),
    ],
)
def test_by_provider_and_address(provider: str, env: dict[str, str], mode: str, url: str | None):
    found = target(ModelSettings(), env, provider=provider)
    assert found.api_mode == mode
    assert url in {None, found.base_url}


def test_a_setting_is_for_its_own_provider():
    settings = ModelSettings(
        provider="openai",
        api_mode=CHAT,
        fallback_providers=(
            Fallback(provider="anthropic"),
            Fallback(provider="gemini", api_mode=CHAT),
        ),
    )
    resolved = resolve(settings, KEYS.get)
    modes = [one.api_mode for one in (resolved.primary, *resolved.fallbacks)]
    assert modes == [CHAT, ANTHROPIC, CHAT]
    assert target(settings, provider="anthropic").api_mode == ANTHROPIC


@pytest.mark.parametrize(
    ("url", "told", "mode", "base"),
    [
        ("https://api.z.ai/api/anthropic", "", ANTHROPIC, "https://api.z.ai/api/anthropic"),
        ("https://a.example/v1/messages", ANTHROPIC, ANTHROPIC, "https://a.example/v1"),
        ("https://a.example/v1/responses", RESPONSES, RESPONSES, "https://a.example/v1"),
        (
            "https://generativelanguage.googleapis.com/v1beta/openai",
            "",
            GEMINI,
            "https://generativelanguage.googleapis.com",
        ),
        ("https://a.example/v1", "", CHAT, "https://a.example/v1"),
    ],
)
def test_custom_providers(url: str, told: str, mode: str, base: str):
    custom = CustomProvider(name="mine", base_url=url, api_key="k", model="m", api_mode=told)
    found = target(ModelSettings(provider="mine", custom_providers=(custom,)))
    assert (found.api_mode, found.base_url) == (mode, base)


@pytest.mark.parametrize(
    ("mode", "model", "effort"),
    [
        (ANTHROPIC, "claude-opus-4-5-20251101", EffortForm.BUDGET),
        (ANTHROPIC, "claude-sonnet-4-20250514", EffortForm.BUDGET),
        (ANTHROPIC, "claude-opus-4-7", EffortForm.ADAPTIVE),
        (ANTHROPIC, "claude-haiku-5-5", EffortForm.ADAPTIVE),
        (ANTHROPIC, "anthropic/claude-mythos-preview", EffortForm.ADAPTIVE),
        (ANTHROPIC, "claude-3-opus", EffortForm.NOWHERE),
        (GEMINI, "gemini-3.1-pro", EffortForm.LEVEL),
        (GEMINI, "gemini-2.0-flash", EffortForm.NOWHERE),
        (RESPONSES, "gpt-5-chat-latest", EffortForm.NOWHERE),
        (RESPONSES, "o4-mini", EffortForm.OBJECT),
        (RESPONSES, "grok-4", EffortForm.NOWHERE),
    ],
)
def test_what_models_can_do(mode: str, model: str, effort: EffortForm):
    openai = provider_named("openai")
    assert openai is not None
    assert able(profile_for(openai, model), mode, model).effort is effort


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda one: one.name)
def test_chat_profiles_stay_as_they_are(provider):
    profile = profile_for(provider, provider.default_model)
    assert able(profile, CHAT, provider.default_model) == profile


def test_where_keys_were_told():
    env = {"ANTHROPIC_API_KEY": "a, b", "ANTHROPIC_API_KEY_2": "c", "ANTHROPIC_TOKEN": "d"}
    assert told_keys(ModelSettings(), env.get, "anthropic") == [
        ("a", "ANTHROPIC_API_KEY"),
        ("b", "ANTHROPIC_API_KEY"),
        ("c", "ANTHROPIC_API_KEY_2"),
    ]
    custom = CustomProvider(name="mine", base_url="http://x/v1", key_env="MINE")
    settings = ModelSettings(custom_providers=(custom,), provider="openai", api_key="k")
    assert told_keys(settings, {"MINE": "m"}.get, "mine") == [("m", "MINE")]
    assert told_keys(settings, {}.get, "openai") == [("k", "config.yaml")]
