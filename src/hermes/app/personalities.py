"""How the agent may be asked to speak: the settings' own personalities, and a few of ours."""

from collections.abc import Mapping

from hermes.agent.prompts import prompt_text
from hermes.config.schema import Config
from hermes.config.shapes import as_mapping

BUILT_IN = ("concise", "creative", "friendly", "teacher", "technical")
NONE = "none"
"""The name that stands for no personality, also where the settings name a usual one."""


def personalities(config: Config) -> Mapping[str, str]:
    """The words of each by its name; the settings may change ours, too."""
    ours = {name: _ours(name) for name in BUILT_IN}
    given = {**config.personalities, **config.agent.personalities}
    theirs = {name.strip().lower(): _words(value) for name, value in given.items()}
    return {**ours, **{name: words for name, words in theirs.items() if name and words}}


def personality_words(config: Config, name: str) -> str:
    """For the prompt; for no name, those of the usual one. One that is gone says nothing."""
    wanted = (name or config.display.personality).strip().lower()
    if wanted in {"", NONE, "default"}:
        return ""
    return personalities(config).get(wanted, "")


def _ours(name: str) -> str:
    return prompt_text(f"personalities/{name}")


def _words(value: object) -> str:
    """A text, or a mapping with the prompt and perhaps a tone and a style."""
    if isinstance(value, str):
        return value.strip()
    parts = as_mapping(value) or {}
    lines = [parts.get("system_prompt") or parts.get("prompt")]
    lines += [f"{name.capitalize()}: {parts[name]}" for name in ("tone", "style") if name in parts]
    return "\n".join(str(line).strip() for line in lines if line)
