"""The system prompt: put together once per session, in an order that keeps its beginning stable."""

from datetime import date
from functools import lru_cache

from msgspec import Struct

from hermes.agent.prompts import prompt_text


class PromptFacts(Struct, frozen=True, kw_only=True):
    """What the prompt says about this session. `soul` replaces the built-in identity."""

    soul: str
    system: str
    home: str
    workspace: str
    today: date
    model: str
    provider: str
    profile: str = "default"
    extra: str = ""


@lru_cache(maxsize=16)
def build_prompt(facts: PromptFacts) -> str:
    """Stable parts first, then what the caller adds, then what changes from day to day.

    Sessions that begin alike have one prompt together, not one each.
    """
    parts = [
        facts.soul.strip() or prompt_text("identity"),
        prompt_text("work"),
        _surroundings(facts),
        facts.extra.strip(),
        _today(facts),
    ]
    return "\n\n".join(part for part in parts if part)


def _surroundings(facts: PromptFacts) -> str:
    lines = [
        "# Where you are",
        "",
        f"- Machine: {facts.system}",
        f"- The person's home: {facts.home}",
        f"- Working folder: {facts.workspace} (relative paths start here)",
    ]
    if facts.profile != "default":
        lines.append(f"- Your profile: {facts.profile}")
    return "\n".join(lines)


def _today(facts: PromptFacts) -> str:
    """Only the day: a time would spoil the provider's prompt cache."""
    return (
        f"Conversation started: {facts.today:%A, %Y-%m-%d}\n"
        f"Model: {facts.model}\nProvider: {facts.provider}"
    )
