"""API modes by provider and address, and the features of models there."""

from hermes.models.catalog import with_model_features
from hermes.models.providers import PROVIDERS, EffortFormat, find_provider, model_profile_for
from hermes.models.resolver import ModelTarget, resolve_models
from hermes.models.selection import configured_keys
from hermes.models.settings import CustomProvider, FallbackModel, ModelOverrides, ModelSettings
from hermes.models.urls import ANTHROPIC, CHAT, GEMINI, RESPONSES
from support.cases import cases

KEYS = {f"{name}_API_KEY": "k" for name in ("OPENAI", "ANTHROPIC", "GEMINI", "XAI", "GROQ")}


def target(settings: ModelSettings, env: dict[str, str] | None = None, **flags: str) -> ModelTarget:
    return resolve_models(settings, (KEYS | (env or {})).get, ModelOverrides(**flags)).primary


@cases(
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
def test_api_mode_by_provider_and_address(
    provider: str, env: dict[str, str], mode: str, url: str | None
):
    found = target(ModelSettings(), env, provider=provider)
    assert found.api_mode == mode
    assert url in {None, found.base_url}


def test_api_mode_setting_applies_to_its_own_provider():
    settings = ModelSettings(
        provider="openai",
        api_mode=CHAT,
        fallback_providers=(
            FallbackModel(provider="anthropic"),
            FallbackModel(provider="gemini", api_mode=CHAT),
        ),
    )
    resolved = resolve_models(settings, KEYS.get)
    modes = [one.api_mode for one in (resolved.primary, *resolved.fallbacks)]
    assert modes == [CHAT, ANTHROPIC, CHAT]
    assert target(settings, provider="anthropic").api_mode == ANTHROPIC


@cases(
    ("url", "configured", "mode", "base"),
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
def test_api_mode_of_custom_providers(url: str, configured: str, mode: str, base: str):
    custom = CustomProvider(name="mine", base_url=url, api_key="k", model="m", api_mode=configured)
    found = target(ModelSettings(provider="mine", custom_providers=(custom,)))
    assert (found.api_mode, found.base_url) == (mode, base)


@cases(
    ("mode", "model", "effort"),
    [
        (ANTHROPIC, "claude-opus-4-5-20251101", EffortFormat.BUDGET),
        (ANTHROPIC, "claude-sonnet-4-20250514", EffortFormat.BUDGET),
        (ANTHROPIC, "claude-opus-4-7", EffortFormat.ADAPTIVE),
        (ANTHROPIC, "claude-haiku-5-5", EffortFormat.ADAPTIVE),
        (ANTHROPIC, "anthropic/claude-mythos-preview", EffortFormat.ADAPTIVE),
        (ANTHROPIC, "claude-3-opus", EffortFormat.NONE),
        (GEMINI, "gemini-3.1-pro", EffortFormat.LEVEL),
        (GEMINI, "gemini-2.0-flash", EffortFormat.NONE),
        (RESPONSES, "gpt-5-chat-latest", EffortFormat.NONE),
        (RESPONSES, "o4-mini", EffortFormat.OBJECT),
        (RESPONSES, "grok-4", EffortFormat.NONE),
    ],
)
def test_model_features(mode: str, model: str, effort: EffortFormat):
    openai = find_provider("openai")
    assert openai is not None
    assert with_model_features(model_profile_for(openai, model), mode, model).effort is effort


@cases("provider", PROVIDERS)
def test_chat_profiles_are_unchanged(provider):
    profile = model_profile_for(provider, provider.default_model)
    assert with_model_features(profile, CHAT, provider.default_model) == profile


def test_key_sources():
    env = {"ANTHROPIC_API_KEY": "a, b", "ANTHROPIC_API_KEY_2": "c", "ANTHROPIC_TOKEN": "d"}
    assert configured_keys(ModelSettings(), env.get, "anthropic") == [
        ("a", "ANTHROPIC_API_KEY"),
        ("b", "ANTHROPIC_API_KEY"),
        ("c", "ANTHROPIC_API_KEY_2"),
    ]
    custom = CustomProvider(name="mine", base_url="http://x/v1", key_env="MINE")
    settings = ModelSettings(custom_providers=(custom,), provider="openai", api_key="k")
    assert configured_keys(settings, {"MINE": "m"}.get, "mine") == [("m", "MINE")]
    assert configured_keys(settings, {}.get, "openai") == [("k", "config.yaml")]
