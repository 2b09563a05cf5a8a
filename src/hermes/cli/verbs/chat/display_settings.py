"""Read the display options of a chat from the settings."""

from hermes.cli.context import CliContext
from hermes.config.dotenv import profile_env
from hermes.config.loader import load_config
from hermes.config.schema import Config
from hermes.schema.errors import ConfigError
from hermes.tui.display_options import DEFAULT_OPTIONS, DisplayOptions


def load_display_options(context: CliContext) -> DisplayOptions:
    """The display options; defaults if the settings are invalid, which is reported elsewhere."""
    try:
        home = context.home()
        return display_options_of(load_config(home, profile_env(home.dotenv, context.env)).config)
    except ConfigError:
        return DEFAULT_OPTIONS


def display_options_of(config: Config) -> DisplayOptions:
    display = config.display
    return DisplayOptions(
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
