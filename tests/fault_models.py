"""Models that fail, in every way that a model can: what they do, and what is said of it."""

from collections.abc import Sequence

from msgspec import Struct

from fault_worlds import (
    FILES_ONLY,
    IN_MODELS,
    IN_TURNS,
    MODEL_HEARS,
    OTHER_FILES,
    OWNER_HEARS,
    STARTS,
    Moment,
    Said,
    Surface,
    World,
    only,
)
from hermes.testing.mock_openai import Fault, Reply, Rule, Script

NEXT_MODEL = "choose another model"
ADDRESS = "hermes config set model.base_url"


class Turn(Struct, frozen=True):
    """A fault of the model's answer to a prompt that has the name of the fault in it."""

    said: Said
    reply: Reply


def _status(name: str, cause: str, step: str) -> Turn:
    return Turn(Said(name, cause, step), Reply(fault=Fault("status", named=name)))


def _stream(kind: str, cause: str) -> Turn:
    reply = Reply("some words to begin with", fault=Fault(kind, after=2), chunk=4)
    return Turn(Said(f"stream {kind}", cause, NEXT_MODEL), reply)


def _odd(name: str, fault: Fault, cause: str, step: str) -> Turn:
    return Turn(Said(name, cause, step), Reply("x", fault=fault))


_PAGE = Fault(
    "status", status=200, body="<html>log in</html>", headers={"content-type": "text/html"}
)
_ELSEWHERE = Fault("status", status=302, headers={"location": "http://127.0.0.1:9/x"})

TURNS: Sequence[Turn] = [
    _status("unauthorized", "refused the key (401)", "hermes config set OPENAI_API_KEY"),
    _status("forbidden", "refused the key (403)", "hermes config set OPENAI_API_KEY"),
    _status("out_of_credit", "no credit left (402)", "Top up the account"),
    _status("model_not_found", "does not serve the model", "hermes model"),
    _status("too_large", "is too long for mock", "/new"),
    _status("context_too_long", "maximum context length", "/new"),
    _status("rate_limited", "limits the rate (429)", "Wait a little"),
    _status("policy", "declined the content", "Say it differently"),
    _status("bad_request", "did not accept the request (400)", "begin a new conversation"),
    _status("server_error", "overloaded or broken (500)", NEXT_MODEL),
    _status("bad_gateway", "overloaded or broken (502)", NEXT_MODEL),
    _status("unavailable", "overloaded or broken (503)", NEXT_MODEL),
    _status("overloaded", "overloaded or broken (529)", NEXT_MODEL),
    _stream("cut", "broke off the connection"),
    _stream("garbage", "sent a broken stream"),
    _stream("bad_json", "sent a broken stream"),
    _stream("error_event", "overloaded or broken"),
    _stream("no_end", "stopped in mid-answer"),
    _odd("cut early", Fault("cut"), "broke off the connection", NEXT_MODEL),
    _odd("page", _PAGE, "answered with a web page", ADDRESS),
    _odd("redirect", _ELSEWHERE, "sends us to", ADDRESS),
    _odd("teapot", Fault("status", status=418, body="short"), "(418)", "begin a new conversation"),
    Turn(Said("says nothing", "was empty", NEXT_MODEL), Reply("")),
]
QUIET = [
    Turn(
        Said("silence", "was silent for 0.3 s", "agent.local_stream_stale_timeout 2"),
        Reply("x", fault=Fault("hang")),
    ),
    Turn(
        Said("midway silence", "was silent for 0.3 s", "agent.local_stream_stale_timeout 2"),
        Reply("some words to begin with", fault=Fault("hang", after=2), chunk=4),
    ),
]
SCRIPT = Script(
    # The longer name first: it has the shorter one in it.
    rules=[Rule(one.said.name, [one.reply]) for one in (*TURNS, *reversed(QUIET))],
    models=("mock",),
)
LOCKED_OUT = Script(api_key="sk-another-9876543210", models=("mock",))

_NOBODY = {"OPENAI_API_KEY": "", "HERMES_INFERENCE_PROVIDER": "", "HERMES_INFERENCE_MODEL": ""}
KEY_HINT = "hermes config set OPENAI_API_KEY"


def _alone(cause: str, step: str, exit_code: int = 1) -> Sequence[Said]:
    return [Said("hello", cause, step, exit_code)]


MODELS: Sequence[World] = [
    World(name="a model with faults", faults=[one.said for one in TURNS], cannot=IN_TURNS),
    World(
        name="a model that falls silent", faults=[one.said for one in QUIET], cannot=IN_TURNS,
        silence=0.3,
    ),
    World(
        name="wrong key", faults=_alone("refused the key (401)", KEY_HINT),
        cannot=IN_MODELS, script=LOCKED_OUT,
    ),
    World(
        name="refused", faults=_alone("Connection refused", "hermes setup"),
        cannot=IN_MODELS, url="http://127.0.0.1:9/v1",
    ),
    World(
        name="no network", faults=_alone("no network, or no such host", "hermes setup"),
        cannot=IN_MODELS, url="http://nowhere.invalid/v1",
    ),
    World(
        name="not an address", faults=_alone("is no address", ADDRESS),
        cannot=IN_MODELS, url="http://127.0.0.1:99999/v1",
    ),
    World(
        name="no host", faults=_alone("no request can be made", ADDRESS),
        cannot=IN_MODELS, url="http://a..b/v1",
    ),
    World(
        name="no model", faults=_alone("o model provider is set up", "hermes setup", 78),
        cannot=IN_MODELS, env={**_NOBODY, "OPENAI_BASE_URL": ""},
    ),
    World(
        name="no key", faults=_alone("here is no key", KEY_HINT, 78), cannot=IN_MODELS,
        env={"OPENAI_API_KEY": ""}, url="https://api.openai.com/v1",
    ),
    World(
        name="unknown provider", faults=_alone("nknown provider 'nosuch'", "Choose one of", 78),
        cannot=IN_MODELS, env={"HERMES_INFERENCE_PROVIDER": "nosuch"},
    ),
    World(
        name="unreadable soul", faults=_alone("SOUL.md cannot be read", "mv ", 78),
        cannot={Surface.GATEWAY: STARTS, Surface.CHECK: OTHER_FILES},
        broken=lambda home: (home / "SOUL.md").mkdir(),
    ),
    World(
        name="unknown sandbox", moment=Moment.GREETING,
        faults=[Said("hello", "'nosuch' is not known", "config set terminal.backend auto", 0)],
        differs={
            Surface.DOCTOR: Said("", "'nosuch' is not known", "config set terminal.backend auto"),
            Surface.CHECK: Said("", "there is no sandbox 'nosuch'", "There are auto", 0),
        },
        cannot={
            Surface.CHAT: OWNER_HEARS, Surface.API: OWNER_HEARS, Surface.GATEWAY: OWNER_HEARS,
        },
        settings="terminal:\n  backend: nosuch\n",
    ),
    World(
        name="no docker", faults=_alone("docker: it is not installed", "terminal.backend auto"),
        cannot=only(
            Surface.DOCTOR, because=MODEL_HEARS, GATEWAY=STARTS, CHECK=FILES_ONLY
        ),
        settings="terminal:\n  backend: docker\n", env={"PATH": "/nowhere"},
    ),
]  # fmt: skip
