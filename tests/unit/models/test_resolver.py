from collections.abc import Mapping, Sequence

import pytest
from msgspec import structs

from hermes.models.resolver import (
    ModelTarget,
    NoModelChosen,
    NoProviderConfigured,
    ResolvedModels,
    resolve_models,
    resolve_with_discovery,
)
from hermes.models.settings import (
    CustomProvider,
    FallbackModel,
    KeyStrategy,
    LocalServer,
    ModelOverrides,
    ModelSettings,
)
from hermes.models.urls import is_local, normalize_url
from hermes.schema.errors import ConfigError
from support.cases import cases

OLLAMA = LocalServer(
    provider="ollama",
    base_url="http://127.0.0.1:11434/v1",
    models={"nomic-embed-text": 2048, "qwen3:8b": 40_960, "llama3": None},
)
BOX = CustomProvider(
    name="box",
    base_url="http://10.0.0.5:9000/v1/",
    key_env="BOX_KEY",
    models={"big": 65_536, "small": None},
    context_length=16_384,
    rate_limit_delay=1.5,
    extra_body={"top_k": 5},
    ssl_verify=False,
)


def chosen(
    settings: ModelSettings | None = None,
    env: Mapping[str, str] | None = None,
    flags: ModelOverrides | None = None,
    found: Sequence[LocalServer] = (),
) -> ModelTarget:
    return resolve_models(
        settings or ModelSettings(), (env or {}).get, flags or ModelOverrides(), found
    ).primary


def provider_and_model(target: ModelTarget) -> tuple[str, str]:
    return target.provider, target.model


ROUTER = {"OPENROUTER_API_KEY": "or-key"}
BOTH = {**ROUTER, "OPENAI_API_KEY": "oa-key"}


@cases(
    ("settings", "env", "flags", "expected"),
    [
        ({}, ROUTER, {}, ("openrouter", "anthropic/claude-sonnet-4.5")),
        ({}, {"OPENAI_API_KEY": "k"}, {}, ("openai", "gpt-5")),
        ({}, {"GOOGLE_API_KEY": "k"}, {}, ("gemini", "gemini-2.5-pro")),
        ({}, BOTH, {}, ("openrouter", "anthropic/claude-sonnet-4.5")),
        ({"provider": "auto"}, BOTH, {}, ("openrouter", "anthropic/claude-sonnet-4.5")),
        ({"provider": "openai"}, BOTH, {}, ("openai", "gpt-5")),
        ({"provider": "openai", "default": "gpt-4o"}, BOTH, {}, ("openai", "gpt-4o")),
        ({"provider": "openai", "default": "gpt-4o"}, BOTH, {"model": "o3"}, ("openai", "o3")),
        (
            {"provider": "openai", "default": "gpt-4o"},
            BOTH,
            {"provider": "openrouter"},
            ("openrouter", "anthropic/claude-sonnet-4.5"),
        ),
        (
            {"provider": "openai", "default": "gpt-4o"},
            BOTH,
            {"provider": "OpenAI"},
            ("openai", "gpt-4o"),
        ),
        (
            {},
            {**BOTH, "HERMES_INFERENCE_PROVIDER": "openai", "HERMES_INFERENCE_MODEL": "o3"},
            {},
            ("openai", "o3"),
        ),
        (
            {"provider": "openrouter", "default": "x/y"},
            {**BOTH, "HERMES_INFERENCE_PROVIDER": "openai", "HERMES_INFERENCE_MODEL": "o3"},
            {},
            ("openrouter", "x/y"),
        ),
        ({"default": "openai/gpt-5"}, BOTH, {}, ("openai", "gpt-5")),
        ({"default": "openai/gpt-5"}, ROUTER, {}, ("openrouter", "openai/gpt-5")),
        ({"default": "openai:gpt-5"}, BOTH, {}, ("openai", "gpt-5")),
        ({"default": "ollama/qwen3:8b"}, {}, {}, ("ollama", "qwen3:8b")),
        (
            {"provider": "openrouter"},
            BOTH,
            {"model": "openai/gpt-5"},
            ("openrouter", "openai/gpt-5"),
        ),
        (
            {"provider": "anthropic", "base_url": "https://a.test/v1"},
            {**BOTH, "ANTHROPIC_API_KEY": "k"},
            {"model": "openai/gpt-5"},
            ("openai", "gpt-5"),
        ),
        (
            {"provider": "lmstudio"},
            BOTH,
            {"model": "openai/gpt-oss"},
            ("lmstudio", "openai/gpt-oss"),
        ),
        ({"provider": "glm"}, {"GLM_API_KEY": "k"}, {}, ("zai", "glm-4.6")),
        ({"disabled": frozenset({"openrouter"})}, BOTH, {}, ("openai", "gpt-5")),
    ],
)
def test_provider_and_model_choice(settings, env, flags, expected: tuple[str, str]):
    assert (
        provider_and_model(chosen(ModelSettings(**settings), env, ModelOverrides(**flags)))
        == expected
    )


def test_missing_configuration_has_a_hint():
    with pytest.raises(NoProviderConfigured) as caught:
        chosen()
    assert "hermes setup" in caught.value.hint
    assert "hermes setup" in caught.value.hint


@cases(
    ("settings", "message", "hint"),
    [
        ({"provider": "openai"}, "No key is set for OpenAI.", "OPENAI_API_KEY"),
        ({"provider": "nobody"}, "Unknown provider: 'nobody'.", "openrouter"),
        ({"provider": "custom"}, "needs an address", "model.base_url"),
        ({"provider": "custom:attic"}, "no custom provider is named 'attic'", "custom_providers"),
        (
            {"provider": "groq", "disabled": frozenset({"groq"})},
            "groq is disabled",
            "providers.groq.enabled true",
        ),
    ],
)
def test_wrong_settings_are_reported(settings, message: str, hint: str):
    with pytest.raises(ConfigError, match=message) as caught:
        chosen(ModelSettings(**settings))
    assert hint in caught.value.hint


def test_addresses_come_from_the_right_source():
    target = chosen(
        ModelSettings(provider="openai"), {**BOTH, "OPENAI_BASE_URL": "https://p.test/v1/"}
    )
    assert (target.base_url, target.keys) == ("https://p.test/v1", ("oa-key",))
    target = chosen(
        ModelSettings(default="m"), {**BOTH, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    )
    assert provider_and_model(target) == ("custom", "m")
    target = chosen(ModelSettings(default="m", base_url="https://openrouter.ai/api/v1"), BOTH)
    assert (*provider_and_model(target), target.keys) == ("openrouter", "m", ("or-key",))
    target = chosen(
        ModelSettings(provider="openai"),
        BOTH,
        ModelOverrides(base_url="http://x.test/v1", model="m"),
    )
    assert (*provider_and_model(target), target.base_url) == ("custom", "m", "http://x.test/v1")


def test_explicit_key_precedes_the_environment():
    assert chosen(ModelSettings(provider="openai", api_key="mine"), BOTH).keys == ("mine",)
    assert chosen(
        ModelSettings(provider="openai", api_key="mine"),
        BOTH,
        ModelOverrides(provider="openai", api_key="now"),
    ).keys == ("now",)


def test_several_keys_are_collected():
    env = {"OPENAI_API_KEY": "a, b", "OPENAI_API_KEY_2": "c"}
    settings = ModelSettings(
        provider="openai",
        pools={"openai": ("d",)},
        strategies={"openai": KeyStrategy.ROUND_ROBIN},
    )
    target = chosen(settings, env)
    assert target.keys == ("a", "b", "c", "d")
    assert target.strategy is KeyStrategy.ROUND_ROBIN
    assert target.key_env == "OPENAI_API_KEY"


@cases(
    ("settings", "flags"),
    [
        ({"provider": "custom:box"}, {}),
        ({"provider": "Box"}, {}),
        ({"default": "custom:box:big"}, {}),
        ({"default": "box/big"}, {}),
        ({}, {"provider": "box"}),
    ],
)
def test_custom_provider_is_found_by_any_name(settings, flags):
    target = chosen(
        ModelSettings(custom_providers=(BOX,), **settings),
        {"BOX_KEY": "k"},
        ModelOverrides(**flags),
    )
    assert provider_and_model(target) == ("box", "big")
    assert target.base_url == "http://10.0.0.5:9000/v1"
    assert (target.keys, target.window, target.min_interval) == (("k",), 65_536, 1.5)
    assert (target.verify, target.local, target.extra) == (False, True, {"top_k": 5})


def test_context_windows_and_limits():
    settings = ModelSettings(provider="openai", context_length=9_000, max_tokens=77)
    target = chosen(settings, BOTH)
    assert (target.window, target.max_output) == (9_000, 77)
    box = ModelSettings(custom_providers=(BOX,), provider="box", default="small")
    assert chosen(box).window == 16_384


def test_idle_timeouts():
    assert chosen(ModelSettings(provider="ollama", default="m")).idle == 900.0
    assert chosen(None, ROUTER).idle == 120.0
    assert chosen(ModelSettings(remote_idle=30.0), ROUTER).idle == 30.0
    assert (
        chosen(ModelSettings(custom_providers=(BOX,), provider="box", local_idle=50.0)).idle == 50.0
    )


def test_ollama_gets_its_context_size():
    settings = ModelSettings(provider="ollama", default="m", ollama_num_ctx=32_000)
    assert chosen(settings).extra == {"options": {"num_ctx": 32_000}}


def test_fallbacks_are_resolved():
    settings = ModelSettings(
        provider="openai",
        custom_providers=(BOX,),
        fallback_providers=(
            FallbackModel(provider="openrouter", model="x/y"),
            FallbackModel(provider="box", model="small"),
            FallbackModel(base_url="http://other.test/v1", model="m", api_key="o"),
        ),
        tries=5,
    )
    resolved = resolve_models(settings, BOTH.get)
    assert [provider_and_model(one) for one in resolved.fallbacks] == [
        ("openrouter", "x/y"),
        ("box", "small"),
        ("custom", "m"),
    ]
    assert resolved.fallbacks[2].keys == ("o",)
    assert {one.source for one in resolved.fallbacks} == {"fallback"}
    assert resolved.tries == 5


def test_local_server_is_the_last_resort():
    target = chosen(found=[OLLAMA])
    assert provider_and_model(target) == ("ollama", "qwen3:8b")
    assert (target.window, target.keys, target.source) == (40_960, (), "found running")
    assert provider_and_model(chosen(ModelSettings(default="llama3"), found=[OLLAMA])) == (
        "ollama",
        "llama3",
    )
    assert provider_and_model(chosen(env=ROUTER, found=[OLLAMA]))[0] == "openrouter"


def test_named_model_is_never_replaced():
    with pytest.raises(ConfigError, match="no local server has the model 'big'") as caught:
        chosen(ModelSettings(default="big"), found=[OLLAMA])
    assert "qwen3:8b" in caught.value.hint


class TestDiscovery:
    async def live(self, settings: ModelSettings, env: Mapping[str, str], **seen) -> ResolvedModels:
        self.asked: list[str] = []

        async def look() -> Sequence[LocalServer]:
            self.asked.append("look")
            return seen.get("found", ())

        async def ask(target: ModelTarget) -> Mapping[str, int | None]:
            self.asked.append(target.base_url)
            return seen.get("models", {})

        return await resolve_with_discovery(settings, env.get, ModelOverrides(), look, ask)

    async def test_no_discovery_with_complete_settings(self):
        resolved = await self.live(ModelSettings(), ROUTER)
        assert resolved.primary.provider == "openrouter"
        assert self.asked == []

    async def test_local_server_is_discovered_without_settings(self):
        resolved = await self.live(ModelSettings(), {}, found=[OLLAMA])
        assert provider_and_model(resolved.primary) == ("ollama", "qwen3:8b")
        with pytest.raises(NoProviderConfigured):
            await self.live(ModelSettings(), {})

    async def test_models_are_listed_if_none_is_named(self):
        settings = ModelSettings(provider="llamacpp")
        resolved = await self.live(settings, {}, models={"bge-embed": 1, "qwen": 12_345})
        assert provider_and_model(resolved.primary) == ("llamacpp", "qwen")
        assert resolved.primary.window == 12_345
        assert self.asked == ["http://127.0.0.1:8080/v1"]
        with pytest.raises(NoModelChosen, match="no model is chosen for llamacpp"):
            await self.live(settings, {})


@cases(
    ("url", "tidy"),
    [
        ("https://api.acme.test/v1/", "https://api.acme.test/v1"),
        ("https://api.acme.test/v1/chat/completions", "https://api.acme.test/v1"),
        ("localhost:11434", "http://localhost:11434/v1"),
        ("0.0.0.0:11434", "http://127.0.0.1:11434/v1"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        ("https://api.acme.test", "https://api.acme.test"),
    ],
)
def test_addresses_are_normalized(url: str, tidy: str):
    assert normalize_url(url) == tidy


@cases(
    ("url", "local"),
    [
        ("http://localhost:1/v1", True),
        ("http://[::1]:1/v1", True),
        ("http://192.168.1.4/v1", True),
        ("http://172.20.0.2/v1", True),
        ("http://nas.local:8000/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://10.acme.com/v1", False),
        ("https://localhost.evil.test/v1", False),
        ("http://172.40.0.2/v1", False),
    ],
)
def test_local_addresses_are_recognised(url: str, local: bool):
    assert is_local(url) is local


OPENAI_KEY = {"OPENAI_API_KEY": "oa-key"}


@cases(
    ("settings", "env", "flags", "keys"),
    [
        ({"provider": "custom", "base_url": "http://evil.test/v1"}, {}, {}, ()),
        ({"base_url": "http://evil.test/v1"}, {}, {}, ()),
        ({}, {}, {"base_url": "http://evil.test/v1"}, ()),
        ({}, {"OPENAI_BASE_URL": "http://own.test/v1"}, {}, ("oa-key",)),
        (
            {},
            {"OPENAI_BASE_URL": "http://own.test/v1"},
            {"base_url": "http://OWN.test/other"},
            ("oa-key",),
        ),
        ({}, {"OPENAI_BASE_URL": "http://own.test/v1"}, {"base_url": "http://evil.test"}, ()),
        ({}, {"OPENAI_BASE_URL": "http://own.test/v1"}, {"base_url": "http://own.test:81"}, ()),
        ({}, {}, {"base_url": "https://api.openai.com/v1"}, ("oa-key",)),
        ({"base_url": "http://evil.test/v1", "api_key": "for-it"}, {}, {}, ("for-it",)),
    ],
)
def test_openai_key_goes_only_to_its_address(settings, env, flags, keys):
    model = ModelSettings(default="m", **settings)
    target = chosen(model, {**OPENAI_KEY, **env}, ModelOverrides(**flags))
    assert target.keys == keys


def test_fallback_gets_only_its_named_key():
    named = FallbackModel(base_url="http://a.test/v1", model="m", key_env="OPENAI_API_KEY")
    unnamed = FallbackModel(base_url="http://b.test/v1", model="m")
    settings = ModelSettings(default="m", fallback_providers=(named, unnamed))
    found = resolve_models(settings, {**BOTH}.get).fallbacks
    assert [target.keys for target in found] == [("oa-key",), ()]


@cases("key", ["sk-a\nb", "sk-a\rb", "sk-\x00", "sk-\x1b[0m", "sk-\u00e9"])
def test_invalid_key_is_reported_without_it(key: str):
    box = CustomProvider(name="box", base_url="http://10.0.0.5/v1", api_key=key)
    custom = ModelSettings(provider="box", default="m", custom_providers=(box,))
    for settings, env in ((ModelSettings(), {"OPENAI_API_KEY": key}), (custom, {})):
        with pytest.raises(ConfigError, match="contains an invalid character") as caught:
            chosen(settings, env)
        assert "sk-" not in caught.value.sentence


def test_address_with_a_password_and_a_key_is_reported_without_them():
    settings = ModelSettings(base_url="http://me:hunter2@box.test/v1", api_key="k", default="m")
    with pytest.raises(ConfigError, match="contains a password") as caught:
        chosen(settings)
    assert "hunter2" not in caught.value.sentence
    alone = ModelSettings(base_url="http://me:hunter2@box.test/v1", default="m")
    assert chosen(alone).base_url == "http://me:hunter2@box.test/v1"


AT_PROXY = ModelSettings(provider="z.ai", base_url="http://proxy.test/v1", api_key="p", default="m")


@pytest.mark.parametrize("provider", ["zai", "GLM", "z.ai"])
def test_every_alias_of_the_provider_means_its_address_and_key(provider: str):
    target = chosen(AT_PROXY, {"GLM_API_KEY": "own"}, ModelOverrides(provider=provider, model="m"))
    assert (target.base_url, target.keys) == ("http://proxy.test/v1", ("p",))


def test_configured_address_precedes_the_provider_from_env():
    env = {"HERMES_INFERENCE_PROVIDER": "deepseek", "DEEPSEEK_API_KEY": "ds"}
    by_settings = chosen(ModelSettings(base_url="http://a.test/v1", default="m"), env)
    by_flag = chosen(None, env, ModelOverrides(base_url="http://a.test/v1", model="m"))
    for target in (by_settings, by_flag):
        assert (target.provider, target.keys) == ("custom", ())


def test_given_key_does_not_go_to_the_configured_address():
    env = {"GLM_BASE_URL": "http://own.test/v1", "GLM_API_KEY": "own"}
    target = chosen(AT_PROXY, env, ModelOverrides(provider="z.ai", api_key="mine"))
    assert (target.base_url, target.keys) == ("http://own.test/v1", ("mine",))


def test_pooled_keys_do_not_go_to_another_address():
    pools = {"zai": ("pooled",), "box": ("of-box",)}
    at_proxy = structs.replace(AT_PROXY, pools=pools, custom_providers=(BOX,))
    assert chosen(at_proxy).keys == ("p",)
    assert chosen(structs.replace(at_proxy, base_url="")).keys == ("p", "pooled")
    box = structs.replace(at_proxy, provider="box")
    assert chosen(box).keys == ("p",)
    assert chosen(structs.replace(box, base_url="", api_key="")).keys == ("of-box",)


@cases(
    ("settings", "flags"),
    [
        (ModelSettings(default="m", api_key="whose"), ModelOverrides()),
        (ModelSettings(default="anthropic/m", api_key="whose"), ModelOverrides(model="deepseek/m")),
        (ModelSettings(provider="openai"), ModelOverrides(model="m", api_key="whose")),
        (
            ModelSettings(
                provider="openai", fallback_providers=(FallbackModel(model="m", api_key="whose"),)
            ),
            ModelOverrides(),
        ),
        (
            ModelSettings(
                provider="openai", fallback_providers=(FallbackModel(model="m", key_env="BOX_KEY"),)
            ),
            ModelOverrides(),
        ),
    ],
)
def test_key_without_a_provider_is_not_sent(settings: ModelSettings, flags: ModelOverrides):
    env = {**BOTH, "ANTHROPIC_API_KEY": "a", "DEEPSEEK_API_KEY": "d", "BOX_KEY": "b"}
    with pytest.raises(ConfigError) as caught:
        chosen(settings, env, flags)
    assert "provider" in caught.value.sentence
    assert "whose" not in caught.value.sentence
