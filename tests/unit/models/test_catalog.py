import re

import pytest

from hermes.models.catalog import DEFAULT_WINDOW, LOCAL_WINDOW, catalog_entry, context_window, price
from hermes.models.providers import (
    CUSTOM,
    EFFORTS,
    EMBEDDED,
    PROVIDERS,
    EffortFormat,
    find_provider,
    model_profile_for,
)
from hermes.schema.messages import Usage
from support.cases import cases

MILLION = Usage(input=1_000_000, output=1_000_000)


@cases(
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


@cases(
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
    assert context_window(model) == window
    assert context_window(model, local=True) == LOCAL_WINDOW


def test_default_models_are_in_the_catalog():
    for provider in PROVIDERS:
        assert provider.local or catalog_entry(provider.default_model), provider.name


def test_provider_table_is_consistent():
    names = [name for one in (*PROVIDERS, CUSTOM) for name in (one.name, *one.aliases)]
    assert len(names) == len(set(names))
    for provider in PROVIDERS:
        assert re.match(r"https://|http://127\.0\.0\.1:|embedded://", provider.base_url)
        assert not provider.base_url.endswith("/")
        assert provider.key_env or provider.name == EMBEDDED
        assert provider.local or provider.default_model
        assert set(provider.profile.efforts) <= set(EFFORTS)
        re.compile(provider.reasoning_models)


def test_providers_are_found_by_name_and_alias():
    for name in ("zai", "GLM", "z.ai", " Zhipu "):
        provider = find_provider(name)
        assert provider is not None
        assert provider.name == "zai"
    assert find_provider("lm_studio") is find_provider("lmstudio")
    assert find_provider("nobody") is None


@cases(
    ("provider", "model", "form"),
    [
        ("openai", "gpt-5-mini", EffortFormat.FIELD),
        ("openai", "gpt-4o", EffortFormat.NONE),
        ("openrouter", "any/thing", EffortFormat.OBJECT),
        ("xai", "grok-4", EffortFormat.NONE),
        ("deepseek", "deepseek-chat", EffortFormat.SWITCH),
        ("vllm", "Qwen/Qwen3-8B", EffortFormat.TEMPLATE),
        ("lmstudio", "anything", EffortFormat.NONE),
    ],
)
def test_effort_is_sent_only_to_reasoning_models(provider: str, model: str, form: EffortFormat):
    found = find_provider(provider)
    assert found is not None
    assert model_profile_for(found, model).effort is form
