"""Agent settings reach the plans and models."""

import json
from pathlib import Path

import msgspec
import pytest

from hermes.agent.plan import Plan
from hermes.agent.turn import run_turn
from hermes.app.build import App
from hermes.app.model_settings import model_settings
from hermes.app.models import auxiliary_flags, summary_flags
from hermes.app.prompt_context import PREFILL_SETTING, read_prefill
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.models.resolver import resolve_models
from hermes.models.settings import ModelOverrides
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Assistant, Stop, Text, User, text_of
from hermes.schema.sessions import Session
from hermes.testing.scripted_model import ScriptedModel, answer_script
from support.app_profile import make_scope, open_profile
from support.cases import cases
from support.turns import EventRecorder, user_message

EXAMPLES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ahoy!"}]


async def planned(app: App, root: Path, effort: str = "") -> Plan:
    session = Session(id="s", started_at=app.clock.now(), cwd=str(root), effort=effort)
    plan = await app.planner.plan(session, make_scope(root), [])
    assert isinstance(plan, Plan)
    return plan


def settings(**options: object) -> Config:
    return msgspec.convert(options, Config)


async def test_environment_hint_is_in_the_prompt(tmp_path: Path) -> None:
    hint = "agent: {environment_hint: This is a build server., system_prompt: Be brief.}\n"
    async with open_profile(tmp_path, hint) as app:
        assert "This is a build server.\n\nBe brief." in (await planned(app, tmp_path)).system


@pytest.mark.parametrize(
    ("overrides", "chosen", "effort"),
    [
        ("{mock: high, other: minimal}", "", "high"),
        ("{openai/mock: xhigh, mock: high}", "", "xhigh"),
        ("{other: minimal}", "", "low"),
        ("{mock: high}", "medium", "medium"),
    ],
)
async def test_model_can_have_its_own_effort(
    tmp_path: Path, overrides: str, chosen: str, effort: str
) -> None:
    section = f"agent: {{reasoning_effort: low, reasoning_overrides: {overrides}}}\n"
    async with open_profile(tmp_path, section) as app:
        assert (await planned(app, tmp_path, chosen)).effort == effort


async def test_prefill_precedes_every_conversation(tmp_path: Path) -> None:
    async with open_profile(tmp_path) as app:
        plan = await planned(app, tmp_path)
    (tmp_path / "home" / "first.json").write_text(json.dumps(EXAMPLES))
    home = Home(root=tmp_path / "home", path=tmp_path / "home")
    model, recorder = ScriptedModel(answer_script("Ahoy again!")), EventRecorder()
    prefilled = msgspec.structs.replace(plan, model=model, prefill=read_prefill(home, "first.json"))
    await run_turn(prefilled, [user_message("hello")], recorder)
    (request,) = model.requests
    assert [text_of(one) for one in request.messages] == ["Hi", "Ahoy!", "hello"]
    assert [text_of(one) for one in recorder.said] == ["hello", "Ahoy again!"]


async def test_prefill_file_is_named_in_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "first.json"
    file.write_text(json.dumps(EXAMPLES))
    async with open_profile(tmp_path, f"{PREFILL_SETTING}: {file}\n") as app:
        plan = await planned(app, tmp_path)
    hi, ahoy = (Text("Hi"),), (Text("Ahoy!"),)
    assert [*plan.prefill] == [User("prefill_1", hi), Assistant("prefill_2", ahoy, Stop.END)]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        ("{", "not valid JSON"),
        ("{}", "not a list"),
        ('[{"role": "system", "content": "x"}]', "neither user nor assistant"),
        ('[{"role": "user"}]', "entry 1 is not a text"),
        ("[1]", "entry 1 is not a text"),
    ],
)
def test_invalid_prefill_file_is_reported(tmp_path: Path, content: str | None, why: str) -> None:
    if content is not None:
        (tmp_path / "f").write_text(content)
    with pytest.raises(ConfigError, match=why) as caught:
        read_prefill(Home(root=tmp_path, path=tmp_path), "f")
    assert PREFILL_SETTING in caught.value.hint


def test_auxiliary_slot_sets_model_address_and_retries() -> None:
    slot = {"model": "small", "base_url": "http://127.0.0.1:1/v1", "api_key": "k"}
    config = settings(auxiliary={"title_generation": slot, "transient_retries": 4})
    assert auxiliary_flags(config, config.auxiliary.title_generation) == ModelOverrides(
        model="small", base_url="http://127.0.0.1:1/v1", api_key="k", tries=5
    )
    assert auxiliary_flags(config, config.auxiliary.compression) is None


def test_older_summary_model_settings_apply_if_the_slot_is_empty() -> None:
    old = {"summary_model": "s", "summary_provider": "auto", "summary_base_url": "http://h/v1"}
    assert summary_flags(settings(compression=old)) == ModelOverrides(
        model="s", base_url="http://h/v1", tries=3
    )
    slot = {"compression": {"model": "new", "provider": "openai"}}
    wish = summary_flags(settings(compression=old, auxiliary=slot))
    assert wish == ModelOverrides(model="new", provider="openai", tries=3)
    assert summary_flags(settings()) is None


def test_flags_set_the_number_of_retries() -> None:
    model = model_settings(settings(agent={"api_max_retries": 2}))
    env = {"OPENAI_API_KEY": "k"}.get
    assert resolve_models(model, env, ModelOverrides(model="m", provider="openai")).tries == 2
    assert (
        resolve_models(model, env, ModelOverrides(model="m", provider="openai", tries=7)).tries == 7
    )


@pytest.mark.parametrize(("mode", "shown"), [("auto", True), ("native", True), ("text", False)])
def test_images_are_sent_or_named_as_configured(mode: str, shown: bool) -> None:
    own = {"name": "own", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    arguments = model_settings(settings(agent={"image_input_mode": mode}, custom_providers=[own]))
    env = {"OPENAI_API_KEY": "k"}.get
    for provider, model in (("openai", "gpt-4o"), ("own", "m")):
        target = resolve_models(
            arguments, env, ModelOverrides(model=model, provider=provider)
        ).primary
        assert target.profile.images is shown


def test_model_without_vision_gets_images_only_if_configured() -> None:
    env = {"DEEPSEEK_API_KEY": "k"}.get
    blind = ModelOverrides(model="deepseek-chat", provider="deepseek")
    for mode, shown in (("auto", False), ("native", True)):
        model = model_settings(settings(agent={"image_input_mode": mode}))
        assert resolve_models(model, env, blind).primary.profile.images is shown


@cases(
    ("tier", "provider", "sent"),
    [
        ("fast", "openai", {"service_tier": "priority"}),
        ("flex", "openai", {"service_tier": "flex"}),
        ("normal", "openai", {}),
        ("", "openai", {}),
        ("fast", "anthropic", {}),
    ],
)
def test_service_tier_is_sent_where_supported(
    tier: str, provider: str, sent: dict[str, str]
) -> None:
    model = model_settings(settings(agent={"service_tier": tier}))
    env = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}.get
    assert (
        resolve_models(model, env, ModelOverrides(model="m", provider=provider)).primary.extra
        == sent
    )
