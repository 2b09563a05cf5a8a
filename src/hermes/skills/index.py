"""The list of skills in the prompt: one line each, so that the right one is opened in time."""

from collections.abc import Sequence
from itertools import groupby

from hermes.skills.shelf import Skill

_HEAD = """# Skills

Before work that one of these covers, open it with skill_view and follow it."""
LONGEST = 200


def index(skills: Sequence[Skill]) -> str:
    """Empty without skills. The same skills give the same bytes."""
    if not skills:
        return ""
    ordered = sorted(skills, key=lambda skill: (skill.category, skill.name))
    lines = [_HEAD]
    for category, some in groupby(ordered, key=lambda skill: skill.category):
        lines.append(f"\n{category}:")
        lines.extend(f"- {skill.name}: {_short(skill.head.description)}" for skill in some)
    return "\n".join(lines)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1].rstrip()}…"
