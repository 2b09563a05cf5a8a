"""The ways in which a model can fail, and the expected messages."""

from collections.abc import Sequence

from msgspec import Struct

from hermes.testing.fake_openai import Fault, Reply, Rule, Script
from support.faults.scenarios import (
    FILES_ONLY,
    IN_MODELS,
    IN_TURNS,
    MODEL_HEARS,
    OTHER_FILES,
    OWNER_HEARS,
    STARTS,
    ExpectedMessage,
    FaultMoment,
    FaultScenario,
    Surface,
    all_surfaces_but,
)

NEXT_MODEL = "choose another model"
ADDRESS = "hermes config set model.base_url"


class ModelFault(Struct, frozen=True):
    """A fault in the answer to a prompt that contains the fault's name."""

    expected: ExpectedMessage
    reply: Reply


def _status(name: str, cause: str, step: str) -> ModelFault:
    return ModelFault(ExpectedMessage(name, cause, step), Reply(fault=Fault("status", named=name)))


def _stream(kind: str, cause: str) -> ModelFault:
    reply = Reply("some words to begin with", fault=Fault(kind, after=2), chunk=4)
    return ModelFault(ExpectedMessage(f"stream {kind}", cause, NEXT_MODEL), reply)


def _other_fault(name: str, fault: Fault, cause: str, step: str) -> ModelFault:
    return ModelFault(ExpectedMessage(name, cause, step), Reply("x", fault=fault))


_PAGE = Fault(
    "status", status=200, body="<html>log in</html>", headers={"content-type": "text/html"}
)
_ELSEWHERE = Fault("status", status=302, headers={"location": "http://127.0.0.1:9/x"})

MODEL_FAULTS: Sequence[ModelFault] = [
    _status("unauthorized", "rejected the key (401)", "hermes config set OPENAI_API_KEY"),
    _status("forbidden", "rejected the key (403)", "hermes config set OPENAI_API_KEY"),
    _status("out_of_credit", "no credit left (402)", "Top up the account"),
    _status("model_not_found", "does not serve the model", "choose one it has"),
    _status("too_large", "is too long for mock", "/new"),
    _status("context_too_long", "maximum context length", "/new"),
    _status("rate_limited", "is limiting requests (429)", "Wait a little"),
    _status("policy", "declined the content", "Rephrase the message"),
    _status("bad_request", "did not accept the request (400)", "start a new conversation"),
    _status("server_error", "overloaded or broken (500)", NEXT_MODEL),
    _status("bad_gateway", "overloaded or broken (502)", NEXT_MODEL),
    _status("unavailable", "overloaded or broken (503)", NEXT_MODEL),
    _status("overloaded", "overloaded or broken (529)", NEXT_MODEL),
    _stream("cut", "closed the connection early"),
    _stream("garbage", "sent an invalid stream"),
    _stream("bad_json", "sent an invalid stream"),
    _stream("error_event", "overloaded or broken"),
    _stream("no_end", "stopped in mid-answer"),
    _other_fault("cut early", Fault("cut"), "closed the connection early", NEXT_MODEL),
    _other_fault("page", _PAGE, "returned a web page", ADDRESS),
    _other_fault("redirect", _ELSEWHERE, "redirects to", ADDRESS),
    _other_fault(
        "teapot", Fault("status", status=418, body="short"), "(418)", "start a new conversation"
    ),
    ModelFault(ExpectedMessage("says nothing", "was empty", NEXT_MODEL), Reply("")),
]
SILENT_MODELS = [
    ModelFault(
        ExpectedMessage("silence", "sent nothing for 0.3 s", "agent.local_stream_stale_timeout 2"),
        Reply("x", fault=Fault("hang")),
    ),
    ModelFault(
        ExpectedMessage(
            "midway silence", "sent nothing for 0.3 s", "agent.local_stream_stale_timeout 2"
        ),
        Reply("some words to begin with", fault=Fault("hang", after=2), chunk=4),
    ),
]
SCRIPT = Script(
    # The longer name first, because it contains the shorter one.
    rules=[
        Rule(one.expected.name, [one.reply]) for one in (*MODEL_FAULTS, *reversed(SILENT_MODELS))
    ],
    models=("mock",),
)
WRONG_KEY_SCRIPT = Script(api_key="sk-another-9876543210", models=("mock",))

_NO_PROVIDER = {"OPENAI_API_KEY": "", "HERMES_INFERENCE_PROVIDER": "", "HERMES_INFERENCE_MODEL": ""}
KEY_HINT = "hermes config set OPENAI_API_KEY"


def _single_fault(cause: str, step: str, exit_code: int = 1) -> Sequence[ExpectedMessage]:
    return [ExpectedMessage("hello", cause, step, exit_code)]


MODELS: Sequence[FaultScenario] = [
    FaultScenario(
        name="a model with faults", faults=[one.expected for one in MODEL_FAULTS], cannot=IN_TURNS
    ),
    FaultScenario(
        name="a model that falls silent", faults=[one.expected for one in SILENT_MODELS],
        cannot=IN_TURNS,
        silence=0.3,
    ),
    FaultScenario(
        name="wrong key", faults=_single_fault("rejected the key (401)", KEY_HINT),
        cannot=IN_MODELS, script=WRONG_KEY_SCRIPT,
    ),
    FaultScenario(
        name="refused", faults=_single_fault("Connection refused", "hermes setup"),
        cannot=IN_MODELS, url="http://127.0.0.1:9/v1",
    ),
    FaultScenario(
        name="no network", faults=_single_fault("no network or unknown host", "hermes setup"),
        cannot=IN_MODELS, url="http://nowhere.invalid/v1",
    ),
    FaultScenario(
        name="not an address", faults=_single_fault("is not a valid address", ADDRESS),
        cannot=IN_MODELS, url="http://127.0.0.1:99999/v1",
    ),
    FaultScenario(
        name="no host", faults=_single_fault("cannot build a request", ADDRESS),
        cannot=IN_MODELS, url="http://a..b/v1",
    ),
    FaultScenario(
        name="no model", faults=_single_fault("o model provider is set up", "hermes setup", 78),
        cannot=IN_MODELS, env={**_NO_PROVIDER, "OPENAI_BASE_URL": ""},
    ),
    FaultScenario(
        name="no key", faults=_single_fault("o key is set for", KEY_HINT, 78), cannot=IN_MODELS,
        env={"OPENAI_API_KEY": ""}, url="https://api.openai.com/v1",
    ),
    FaultScenario(
        name="unknown provider",
        faults=_single_fault("nknown provider: 'nosuch'", "Choose one of", 78),
        cannot=IN_MODELS, env={"HERMES_INFERENCE_PROVIDER": "nosuch"},
    ),
    FaultScenario(
        name="unreadable soul",
        faults=_single_fault("SOUL.md cannot be read: Is a directory", "mv ", 78),
        cannot={Surface.GATEWAY: STARTS, Surface.CHECK: OTHER_FILES},
        broken=lambda home: (home / "SOUL.md").mkdir(),
    ),
    FaultScenario(
        name="unknown sandbox", moment=FaultMoment.GREETING,
        faults=[
            ExpectedMessage("hello", "'nosuch' is not known", "config set terminal.backend auto", 0)
        ],
        differs={
            Surface.DOCTOR: ExpectedMessage(
                "", "'nosuch' is not known", "config set terminal.backend auto"
            ),
            Surface.CHECK: ExpectedMessage(
                "", "'nosuch' is not known", "config set terminal.backend auto", 0
            ),
        },
        cannot={
            Surface.CHAT: OWNER_HEARS, Surface.API: OWNER_HEARS, Surface.GATEWAY: OWNER_HEARS,
        },
        settings="terminal:\n  backend: nosuch\n",
    ),
    FaultScenario(
        name="no docker",
        faults=_single_fault("docker: not installed", "terminal.backend auto"),
        cannot=all_surfaces_but(
            Surface.DOCTOR, because=MODEL_HEARS, GATEWAY=STARTS, CHECK=FILES_ONLY
        ),
        settings="terminal:\n  backend: docker\n", env={"PATH": "/nowhere"},
    ),
]  # fmt: skip
