"""What is done in a small model's place, because it cannot be trusted with it.

It does not know that it could ask for leave, and of what was refused it says that it is done.
"""

import re
from itertools import takewhile

import msgspec
from msgspec import Raw, Struct

from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.models.embedded.catalogue import PROVIDER
from hermes.models.embedded.turns import Step, turn_of
from hermes.ports.model import Request
from hermes.schema.messages import Assistant, Result, Stop, Text, ToolCall, text_of

LONGEST_REASON = 200
_LONGEST_COMMAND = 300
_OFFER = re.compile(r'call again with escalate="(?P<how>network|outside)"')
_WALL = re.compile(r"read-only file system", re.IGNORECASE)
"""Who may not write somewhere hears of permissions; only the wall makes folders read-only."""
_REFUSED = re.compile(r"(?:\w+: )?Not done: (?P<why>.+)", re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_TO_MODELS = ("Ask ", "Do not ", "Find ", "Look ", "Say ", "Stop", "Tell ")
"""How sentences begin that say what to do next: they are not for people."""


class _Failed(Struct):
    output: str = ""
    note: str = ""


def instead(request: Request, model: str) -> Assistant | None:
    """The answer to a result that needs no thought; None where the model is to be asked."""
    last = request.messages[-1] if request.messages else None
    if not isinstance(last, Result) or not last.failed:
        return None
    step = turn_of(request.messages).steps[-1]
    refused = _REFUSED.match(text_of(last))
    if refused:
        words = f"{_what(step)} was not done: {_for_people(refused['why'])}"
        return Assistant(new_id("msg"), (Text(words),), Stop.END, model=model, provider=PROVIDER)
    call = _with_leave(request, step, text_of(last))
    if call is None:
        return None
    return Assistant(new_id("msg"), (call,), Stop.TOOLS, model=model, provider=PROVIDER)


def _with_leave(request: Request, step: Step, told: str) -> ToolCall | None:
    """The same command again, as whoever asks for leave to go through the wall calls it."""
    name = step.call.name
    spec = next((one for one in request.tools if one.name == name), None)
    if spec is None or "escalate" not in spec.schema.get("properties", {}):
        return None
    try:
        failed = msgspec.json.decode(told, type=_Failed)
        args = msgspec.json.decode(step.call.args, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    offer = _OFFER.search(failed.note)
    if offer is None or (offer["how"] == "outside" and not _WALL.search(failed.output)):
        return None
    lines = failed.output.strip().splitlines()
    why = next((one for one in lines if _WALL.search(one)), lines[-1] if lines else "")
    reason = one_line(f"The sandbox held it back: {why}", LONGEST_REASON)
    wanted = {**args, "escalate": offer["how"], "reason": reason}
    return ToolCall(new_id("call"), name, Raw(msgspec.json.encode(wanted)))


def _for_people(why: str) -> str:
    sentences = _SENTENCE.split(why.strip())
    return " ".join(takewhile(lambda one: not one.startswith(_TO_MODELS), sentences))


def _what(step: Step) -> str:
    try:
        args = msgspec.json.decode(step.call.args, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        args = {}
    given = args.get("command") or args.get("path")
    if not isinstance(given, str):
        return step.call.name or "It"
    shown = f"`{one_line(given, _LONGEST_COMMAND)}`"
    return shown if "command" in args else f"{step.call.name} {shown}"
