"""Texts sent to the model, one Markdown file each."""

from functools import cache
from pathlib import Path


@cache
def prompt_text(name: str) -> str:
    return (Path(__file__).parent / f"{name}.md").read_text("utf-8").strip()
