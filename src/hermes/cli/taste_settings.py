"""What the settings say of how a chat is shown."""

from hermes.cli.context import CliContext
from hermes.config.dotenv import env_of
from hermes.config.load import load_config
from hermes.config.schema import Config
from hermes.schema.errors import ConfigError
from hermes.tui.taste import USUAL, Taste


def taste_in(context: CliContext) -> Taste:
    """The usual one where the settings cannot be read: of that, others tell."""
    try:
        home = context.home()
        return taste_of(load_config(home, env_of(home.dotenv, context.env)).config)
    except ConfigError:
        return USUAL


def taste_of(config: Config) -> Taste:
    display = config.display
    return Taste(
        reasoning=display.show_reasoning,
        open=display.reasoning_full,
        raw=display.final_response_markdown == "raw",
        diffs=display.inline_diffs,
        cost=display.show_cost,
        times=display.timestamps,
        bell=display.bell_on_complete,
        compact=display.compact,
        preview=display.tool_preview_length,
        paste_lines=config.paste_collapse_threshold,
        paste_size=config.paste_collapse_char_threshold,
    )
