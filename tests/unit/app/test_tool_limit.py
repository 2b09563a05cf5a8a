"""A profile with two hundred MCP tools: small requests, and every tool can be called."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from hermes.agent.history import request_tokens
from hermes.agent.plan import Plan
from hermes.agent.turn import run_turn
from hermes.app.build import App
from hermes.app.session_services import SessionWindow
from hermes.models.providers import ServedModel
from hermes.models.wire.chat_completions import ChatWire
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.events import Outcome, ToolStarted
from hermes.schema.messages import text_of
from hermes.schema.scope import Role, Scope
from hermes.schema.sessions import Session
from hermes.schema.tools import Effect
from hermes.testing.scripted_model import ScriptedModel, ScriptStep, answer_script
from support.app_profile import open_profile
from support.many_tools import make_tool_specs
from support.turns import EventRecorder, FakeTool, assistant_message, tool_call, user_message


async def _asks(args: dict[str, object], ctx: ToolContext) -> str | ToolOutput:
    """What a tool with an outside effect does before it acts."""
    wish = ApprovalRequest(tool="far", action=f"far {args}", reaching=Isolation.BEYOND)
    decision = await ctx.request_approval(wish)
    return (
        ToolOutput.text("Done.") if decision.allowed else ToolOutput.text(decision.why, failed=True)
    )


def many() -> dict[str, FakeTool]:
    tools: dict[str, FakeTool] = {}
    for spec in make_tool_specs():
        tool = FakeTool(spec.name, _asks if spec.effect is Effect.OUTSIDE else _reads)
        tool.spec = spec
        tools[spec.name] = tool
    return tools


async def _reads(args: dict[str, object], ctx: ToolContext) -> str:
    return "It will rain."


def scope_in(root: Path, **more: object) -> Scope:
    scope = Scope(profile="default", session="s1", run="r1", workspace=str(root / "work"))
    return structs.replace(scope, source="cli", **more)


async def planned(
    app: App, scope: Scope, *scripts: Sequence[ScriptStep]
) -> tuple[Plan, ScriptedModel]:
    session = Session(id="s1", started_at=app.clock.now(), cwd=scope.workspace)
    plan = await app.planner.plan(session, scope, [])
    assert isinstance(plan, Plan)
    model = ScriptedModel(*scripts)
    return structs.replace(plan, model=model, approvals=lambda: app.approvals), model


def body(model: ScriptedModel, number: int = 0) -> bytes:
    return ChatWire(ServedModel(model="mock", provider="openai", window=1)).body(
        model.requests[number]
    )


async def test_request_stays_small(tmp_path: Path) -> None:
    async with open_profile(tmp_path) as app:
        app.toolbox.add_tools(list(many().values()))
        plan, model = await planned(app, scope_in(tmp_path), answer_script("Hello."))
        assert await run_turn(plan, [user_message("hi")], EventRecorder()) is Outcome.DONE
        assert len(body(model)) <= 17_500
        assert len(app.planner.offered(scope_in(tmp_path))) > 200


async def test_context_usage_counts_only_listed_tools(tmp_path: Path) -> None:
    async with open_profile(tmp_path) as app:
        scope = scope_in(tmp_path)
        session = Session(id="s1", started_at=app.clock.now(), cwd=scope.workspace, source="cli")
        alone = (await SessionWindow(app).usage(session, Role.OWNER)).parts["tools"]
        app.toolbox.add_tools(list(many().values()))
        plan, model = await planned(app, scope, answer_script("Hello."))
        assert await run_turn(plan, [user_message("hi")], EventRecorder()) is Outcome.DONE
        filling = await SessionWindow(app).usage(session, Role.OWNER)
        assert filling.parts["tools"] == request_tokens("", model.requests[0].tools, ())
        assert alone < filling.parts["tools"] < alone + 500


async def test_found_tool_is_called_through_the_proxy(tmp_path: Path) -> None:
    tools = many()
    async with open_profile(tmp_path) as app:
        app.toolbox.add_tools(list(tools.values()))
        found = tool_call("tool_search", query="delete a calendar event")
        wanted = tool_call("tool_call", name="calendar_delete_event", arguments={"id": "e1"})
        scripts = [assistant_message(found)], [assistant_message(wanted)], answer_script("Done.")
        plan, model = await planned(app, scope_in(tmp_path), *scripts)
        recorder = EventRecorder()
        await run_turn(plan, [user_message("hi")], recorder)
        assert '"calendar_delete_event"' in text_of(recorder.results[0])
        assert tools["calendar_delete_event"].asked == [{"id": "e1"}]
        assert recorder.results[1].failed
        assert "no one can be asked here" in text_of(recorder.results[1])
        started = [event for event in recorder.events if isinstance(event, ToolStarted)]
        assert [(one.call.name, one.effect) for one in started] == [
            ("tool_search", Effect.READ),
            ("calendar_delete_event", Effect.OUTSIDE),
        ]
        assert model.requests[0].tools == model.requests[2].tools
        free, _ = await planned(app, scope_in(tmp_path, yolo=True), *scripts)
        allowed = EventRecorder()
        await run_turn(free, [user_message("hi")], allowed)
        assert [result.failed for result in allowed.results] == [False, False]


async def test_unlisted_tool_can_be_called_by_name(tmp_path: Path) -> None:
    async with open_profile(tmp_path) as app:
        app.toolbox.add_tools(list(many().values()))
        script = [assistant_message(tool_call("weather_forecast"))], answer_script("Rain.")
        plan, _ = await planned(app, scope_in(tmp_path), *script)
        recorder = EventRecorder()
        await run_turn(plan, [user_message("hi")], recorder)
        assert text_of(recorder.results[0]) == "It will rain."


async def test_guest_finds_only_permitted_tools(tmp_path: Path) -> None:
    async with open_profile(tmp_path) as app:
        app.toolbox.add_tools(list(many().values()))
        script = (
            [assistant_message(tool_call("tool_call", name="bank_create_transfer"))],
            answer_script("No."),
        )
        plan, _ = await planned(app, scope_in(tmp_path, role=Role.GUEST), *script)
        recorder = EventRecorder()
        await run_turn(plan, [user_message("hi")], recorder)
        assert "bank_create_transfer" not in plan.tools
        assert "Unknown tool" in text_of(recorder.results[0])


async def test_tool_search_follows_the_settings(tmp_path: Path) -> None:
    off = "tools:\n  tool_search:\n    enabled: false\nagent:\n  disabled_toolsets: [bank]\n"
    async with open_profile(tmp_path, off) as app:
        app.toolbox.add_tools(list(many().values()))
        plan, model = await planned(app, scope_in(tmp_path), answer_script("Hello."))
        await run_turn(plan, [user_message("hi")], EventRecorder())
        names = {spec.name for spec in model.requests[0].tools}
        assert "weather_forecast" in names
        assert "tool_search" not in names
        assert "bank_get_account" not in plan.tools
