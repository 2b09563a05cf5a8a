"""Texts sent to the model, one Markdown file each, and the system prompt."""

from datetime import date
from functools import cache, lru_cache
from pathlib import Path

from msgspec import Struct

SKILLS_HEADING = "# Skills"
PROJECT_HEADING = "# This project"
MEMORY_HEADING = "═" * 46
_ENVIRONMENT_HEADING = "# Where you are"
_STARTED = "Conversation started: "


@cache
def prompt_text(name: str) -> str:
    return (Path(__file__).parent / f"{name}.md").read_text("utf-8").strip()


class PromptFacts(Struct, frozen=True, kw_only=True):
    soul: str  # replaces the built-in identity
    system: str
    home: str
    workspace: str
    today: date
    model: str
    provider: str
    profile: str = "default"
    commands: str = ""  # where commands run, if not on the machine with the files
    extra: str = ""
    skills: str = ""  # complete sections, starting with the headings above
    project: str = ""
    memory: str = ""


@lru_cache(maxsize=16)
def build_prompt(facts: PromptFacts) -> str:
    """Stable parts first, then additions by the caller and the project, then daily changes.

    Cached, so that equal sessions share one string.
    """
    environment = [
        _ENVIRONMENT_HEADING,
        "",
        f"- Machine: {facts.system}",
        f"- The person's home: {facts.home}",
        f"- Working directory: {facts.workspace} (relative paths start here)",
    ]
    if facts.commands:
        environment.append(
            f"- {facts.commands}. The file tools work on this machine; use the terminal to read"
            " and change files there."
        )
    if facts.profile != "default":
        environment.append(f"- Your profile: {facts.profile}")
    parts = [
        facts.soul.strip() or prompt_text("identity"),
        prompt_text("work"),
        facts.skills.strip(),
        "\n".join(environment),
        facts.extra.strip(),
        facts.project.strip(),
        facts.memory.strip(),
        # Only the date: a time would invalidate the provider's prompt cache.
        f"{_STARTED}{facts.today:%A, %Y-%m-%d}\nModel: {facts.model}\nProvider: {facts.provider}",
    ]
    return "\n\n".join(part for part in parts if part)


def section_sizes(prompt: str) -> dict[str, int]:
    """Characters per section of a prompt: skills, project, memory and the rest."""
    marks = {
        "skills": f"\n\n{SKILLS_HEADING}\n",
        "system": f"\n\n{_ENVIRONMENT_HEADING}\n",
        "project": f"\n\n{PROJECT_HEADING}\n",
        "memory": f"\n\n{MEMORY_HEADING}\n",
        "end": f"\n\n{_STARTED}",
    }
    found = sorted((prompt.find(mark), name) for name, mark in marks.items() if mark in prompt)
    sizes: dict[str, int] = dict.fromkeys(("system", "skills", "project", "memory"), 0)
    sizes["system"] = found[0][0] if found else len(prompt)
    for number, (start, name) in enumerate(found):
        end = found[number + 1][0] if number + 1 < len(found) else len(prompt)
        sizes["system" if name == "end" else name] += end - start
    return sizes
