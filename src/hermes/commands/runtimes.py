"""The command that chooses who runs the turns of OpenAI's models: our own loop, or codex."""

from hermes.commands.command import Command, Context, Reply, Told
from hermes.schema.errors import UsageError

_WORDS = {
    "auto": "auto",
    "off": "auto",
    "codex_app_server": "codex_app_server",
    "codex": "codex_app_server",
    "on": "codex_app_server",
}
_SAYS = {
    "auto": "Turns are run by our own loop.",
    "codex_app_server": "Turns with OpenAI's models are run by codex.",
}


async def _codex_runtime(context: Context, words: str) -> Reply:
    runtimes = context.services.runtimes
    if runtimes is None:
        raise UsageError("The runtime cannot be chosen from here.")
    word = words.strip().lower()
    if word in {"", "status"}:
        current = runtimes.current()
        return Told(f"{_SAYS[current]} (model.openai_runtime: {current})")
    if word not in _WORDS:
        raise UsageError("/codex-runtime takes auto or codex_app_server.")
    return Told(await runtimes.choose(_WORDS[word]))


COMMANDS = (
    Command(
        name="codex-runtime",
        summary="Let codex run the turns, or our own loop.",
        usage="[auto | codex_app_server]",
        run=_codex_runtime,
        aliases=("codex_runtime",),
        owners=True,
        needs=lambda context: context.services.runtimes is not None,
    ),
)
