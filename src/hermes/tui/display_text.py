"""Adapt texts for people in a chat: hints that work there, results without instructions."""

import re

import msgspec

from hermes.kit.readable_result import readable_result
from hermes.kit.terminal_text import single_line
from hermes.kit.text import one_line, plural
from hermes.schema.messages import Result, text_of

_CHAT_COMMANDS = {
    "hermes model": "/model",
    "hermes sessions list": "/sessions",
    "hermes tools": "/tools",
    "hermes mcp": "/reload-mcp",
}
_SHELL_COMMAND = re.compile(
    r"(?<![\w/-])(" + "|".join(map(re.escape, _CHAT_COMMANDS)) + r")(?=[`.,;:)]|\s*$)"
)
_SENTENCE_END = re.compile(r"(?<=[\w)\]'\"”`]\.)\s+(?=[A-Z])")
_MAX_LINE = 400


def chat_hint(text: str) -> str:
    """Name the slash command instead of the shell command, where there is one."""
    return _SHELL_COMMAND.sub(lambda found: _CHAT_COMMANDS[found[1]], text)


def lost_jobs_text(jobs: int) -> str:
    """Warn that quitting now ends background tasks."""
    one = jobs == 1
    return (
        f"{plural(jobs, 'background task')} {'is' if one else 'are'} still running; "
        f"quitting ends {'it' if one else 'them'}."
    )


def continued_jobs_text(jobs: int) -> str:
    """Say that background tasks go on after quitting."""
    one = jobs == 1
    return (
        f"{plural(jobs, 'background task')} {'continues' if one else 'continue'} in the gateway; "
        f"{'its result is' if one else 'the results are'} shown when you resume this session."
    )


def failure_text(result: Result, tool: str = "") -> str:
    """Return what went wrong, in one line, without advice to the model."""
    text = text_of(result)
    try:
        fields = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return one_line(_SENTENCE_END.split(_without_tool(single_line(text), tool))[0], _MAX_LINE)
    for name in ("error", "exit_code_meaning"):
        if isinstance(message := fields.get(name), str) and message:
            first = _SENTENCE_END.split(_without_tool(single_line(message), tool))[0]
            return one_line(first, _MAX_LINE)
    return f"exit code {code}" if (code := fields.get("exit_code")) else "failed"


def result_text(result: Result) -> str:
    """The output as a person reads it; JSON, which is for the model, becomes lines."""
    if result.shown:
        return result.shown
    text = text_of(result)
    if result.failed:
        return failure_text(result)
    return readable_result(text)


def _without_tool(text: str, tool: str) -> str:
    """Without the tool's name: the line already begins with it."""
    return text.removeprefix(f"{tool}: ") if tool else text
