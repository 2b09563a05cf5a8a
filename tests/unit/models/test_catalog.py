import re

import pytest

from hermes.models.catalog import DEFAULT_WINDOW, LOCAL_WINDOW, known, price, window_of
from hermes.models.profile import EFFORTS, EffortForm
from hermes.models.providers import CUSTOM, EMBEDDED, PROVIDERS, profile_for, provider_named
from hermes.schema.messages import Usage

MILLION = Usage(input=1_000_000, output=1_000_000)


@pytest.mark.parametrize(
    ("model", "provider", "usage", "cost"),
    [
        ("gpt-4o", "openai", MILLION, 12.5),
        ("openai/gpt-4o", "openrouter", MILLION, 12.5),
        ("gpt-4o-2024-08-06", "openai", MILLION, 12.5),
        ("gpt-4o-mini", "openai", MILLION, 0.75),
        ("gpt-4o", "openai", Usage(1_000_000, 0, cache_read=1_000_000), 1.25),
        ("claude-sonnet-4-5", "claude", Usage(100_000, 0, cache_write=100_000), 0.375),
        ("claude-sonnet-4.5", "anthropic", Usage(100_000, 10_000, 50_000, 25_000), 0.33375),
        ("gemini-2.5-pro", "gemini", Usage(100_000, 0), 0.125),
        ("gemini-2.5-pro", "gemini", Usage(300_000, 0), 0.75),
        ("qwen3:8b", "ollama", MILLION, 0.0),
        ("acme/thing:free", "openrouter", MILLION, 0.0),
        ("gpt-4o", "openai", Usage(), 0.0),
        ("gpt-4o", "custom", MILLION, None),
        ("gpt-4o", "somewhere", MILLION, None),
        ("gpt-4o", "groq", MILLION, None),
        ("gpt-7", "openai", MILLION, None),
        ("gpt-5.7-ultra", "openai", MILLION, None),
        ("llama-3.3-70b", "groq", MILLION, None),
        ("", "", MILLION, None),
    ],
)
def test_prices(model: str, provider: str, usage: Usage, cost: float | None):
    assert price(model, provider, usage) == pytest.approx(cost)


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-5", 400_000),
        ("anthropic/claude-sonnet-4.5", 200_000),
        ("google/gemini-2.5-flash:nitro", 1_048_576),
        ("moonshotai/Kimi-K2-Instruct", 262_144),
        ("never-heard-of", DEFAULT_WINDOW),
    ],
)
def test_windows(model: str, window: int):
    assert window_of(model) == window
    assert window_of(model, local=True) == LOCAL_WINDOW


def test_every_default_model_is_known():
    for provider in PROVIDERS:
        assert provider.local or known(provider.default_model), provider.name


def test_the_table_of_providers_is_sound():
    names = [name for one in (*PROVIDERS, CUSTOM) for name in (one.name, *one.aliases)]
    assert len(names) == len(set(names))
    for provider in PROVIDERS:
        assert re.match(r"https://|http://127\.0\.0\.1:|embedded://", provider.base_url)
        assert not provider.base_url.endswith("/")
        assert provider.key_env or provider.name == EMBEDDED
        assert provider.local or provider.default_model
        assert set(provider.profile.efforts) <= set(EFFORTS)
        re.compile(provider.thinks)


def test_names_and_aliases():
    for name in ("zai", "GLM", "z.ai", " Zhipu "):
        provider = provider_named(name)
        assert provider is not None
        assert provider.name == "zai"
    assert provider_named("lm_studio") is provider_named("lmstudio")
    assert provider_named("nobody") is None


@pytest.mark.parametrize(
    ("provider", "model", "form"),
    [
        ("openai", "gpt-5-mini", EffortForm.FIELD),
        ("openai", "gpt-4o", EffortForm.NOWHERE),
        ("openrouter", "any/thing", EffortForm.OBJECT),
        ("xai", "grok-4", EffortForm.NOWHERE),
        ("deepseek", "deepseek-chat", EffortForm.SWITCH),
        ("vllm", "Qwen/Qwen3-8B", EffortForm.TEMPLATE),
        ("lmstudio", "anything", EffortForm.NOWHERE),
    ],
)
def test_only_thinkers_are_asked_to_think(provider: str, model: str, form: EffortForm):
    found = provider_named(provider)
    assert found is not None
    assert profile_for(found, model).effort is form
