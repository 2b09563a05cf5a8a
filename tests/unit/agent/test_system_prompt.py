"""The system prompt: its content, and that its beginning is stable."""

from datetime import date
from itertools import takewhile

from msgspec.structs import replace

from hermes.agent.prompts import (
    MEMORY_HEADING,
    PROJECT_HEADING,
    SKILLS_HEADING,
    PromptFacts,
    build_prompt,
    prompt_text,
    section_sizes,
)

FACTS = PromptFacts(
    soul="",
    system="Linux 6 (x86_64)",
    home="/home/ann",
    workspace="/home/ann/work",
    today=date(2026, 1, 31),
    model="small",
    provider="here",
)


def changed_facts(**changes: object) -> PromptFacts:
    return replace(FACTS, **changes)


def test_prompt_names_machine_folder_and_date() -> None:
    prompt = build_prompt(FACTS)
    assert prompt.startswith(prompt_text("identity"))
    assert "/home/ann/work" in prompt
    assert "Saturday, 2026-01-31" in prompt
    assert "Model: small" in prompt
    assert "profile" not in prompt


def test_soul_replaces_the_identity() -> None:
    prompt = build_prompt(changed_facts(soul="\nYou are a cat.\n"))
    assert prompt.startswith("You are a cat.\n\n")
    assert prompt_text("identity") not in prompt
    assert prompt_text("work") in prompt


def test_another_day_changes_only_the_end() -> None:
    one, other = build_prompt(FACTS), build_prompt(changed_facts(today=date(2026, 2, 1)))
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    same = "".join(left for left, _ in pairs)
    assert len(same) > 0.9 * len(one)
    assert "/home/ann/work" in same


def test_extra_instructions_precede_the_date() -> None:
    prompt = build_prompt(changed_facts(extra="Speak Latin.", profile="work"))
    assert prompt.index("Speak Latin.") < prompt.index("Conversation started")
    assert "Your profile: work" in prompt


def test_prompt_is_short() -> None:
    """About four characters make a token; the first request should stay small."""
    assert len(build_prompt(FACTS)) < 4 * 800


def test_skills_come_early_and_memory_late() -> None:
    prompt_facts = changed_facts(
        extra="Speak Latin.",
        skills=f"{SKILLS_HEADING}\n\nOpen them.",
        project=f"{PROJECT_HEADING}\n\nUse tabs.",
        memory=f"{MEMORY_HEADING}\nMEMORY\n{MEMORY_HEADING}\nThey like tea.",
    )
    prompt = build_prompt(prompt_facts)
    order = [
        "# How you work",
        "Open them.",
        "# Where you are",
        "Speak Latin.",
        "Use tabs.",
        "They like tea.",
    ]
    places = [prompt.index(words) for words in [*order, "Conversation started"]]
    assert places == sorted(places)
    sizes = section_sizes(prompt)
    assert sum(sizes.values()) == len(prompt)
    assert sizes["skills"] == len(prompt_facts.skills) + 2
    assert sizes["project"] == len(prompt_facts.project) + 2
    assert sizes["memory"] == len(prompt_facts.memory) + 2
    assert section_sizes(build_prompt(FACTS))["skills"] == 0
    assert section_sizes("") == {"system": 0, "skills": 0, "project": 0, "memory": 0}
