"""The tasks: the request, the files in the folder, and a check of the result."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

Judge = Callable[[Path, str], bool]
"""Called with the folder after the turn and the text of the answer."""


class Task(Struct, frozen=True, kw_only=True):
    name: str
    prompt: str
    files: Mapping[str, str]
    judge: Judge


def says(*patterns: str) -> Judge:
    """The answer matches all patterns."""
    return lambda _, words: all(re.search(one, words, re.IGNORECASE) for one in patterns)


def holds(name: str, *patterns: str, without: str = "") -> Judge:
    """The file exists and matches all patterns."""

    def judge(folder: Path, _: str) -> bool:
        file = folder / name
        if not file.is_file():
            return False
        text = file.read_text(errors="replace")
        found = all(re.search(one, text, re.IGNORECASE) for one in patterns)
        return found and not (without and without in text)

    return judge


def both(one: Judge, other: Judge) -> Judge:
    return lambda folder, words: one(folder, words) and other(folder, words)


def renamed(old: str, new: str, text: str) -> Judge:
    def judge(folder: Path, _: str) -> bool:
        there = folder / new
        return not (folder / old).exists() and there.is_file() and text in there.read_text()

    return judge


SHOPPING = "milk\nbread\neggs\n"
PLAN = "The launch is on Friday at noon.\nMaria brings the keys.\n"
DIARY = "\n".join(f"Day {day}: walked {day + 2} km." for day in range(1, 8)) + "\n"
REPORT = (
    "Sales grew in spring because the new shop in Porto opened. In summer the heat kept people "
    "at home and sales fell. In autumn the online store made up for it. The year ended with a "
    "small profit of 4,200 euros, the first one since 2019.\n"
)

TASKS: tuple[Task, ...] = (
    Task(
        name="list a folder",
        prompt="Which files are in this folder?",
        files={"shopping.txt": SHOPPING, "plan.txt": PLAN},
        judge=says(r"shopping\.txt", r"plan\.txt"),
    ),
    Task(
        name="the first question",
        prompt="What is in this folder?",
        files={"shopping.txt": SHOPPING, "plan.txt": PLAN},
        judge=says(r"shopping\.txt", r"plan\.txt"),
    ),
    Task(
        name="read a file and answer",
        prompt="When is the launch? It is in plan.txt.",
        files={"plan.txt": PLAN},
        judge=says("friday", "noon|12"),
    ),
    Task(
        name="write a note",
        prompt="Write a note that says 'call the dentist' into note.txt.",
        files={},
        judge=holds("note.txt", "call the dentist"),
    ),
    Task(
        name="find a word",
        prompt="Which file here mentions Maria?",
        files={"a.txt": "nothing\n", "b.txt": "Maria was here\n", "c.txt": "empty\n"},
        judge=both(says(r"b\.txt"), lambda _, words: "a.txt" not in words),
    ),
    Task(
        name="count lines",
        prompt="How many lines does diary.txt have?",
        files={"diary.txt": DIARY},
        judge=says(r"\b(7|seven)\b"),
    ),
    Task(
        name="append a line",
        prompt="Add butter to the end of shopping.txt.",
        files={"shopping.txt": SHOPPING},
        judge=holds("shopping.txt", "milk", "bread", "eggs", r"butter\s*\Z"),
    ),
    Task(
        name="rename a file",
        prompt="Rename draft.txt to final.txt.",
        files={"draft.txt": "the text\n"},
        judge=renamed("draft.txt", "final.txt", "the text"),
    ),
    Task(
        name="make a folder with a file",
        prompt="Make a folder called ideas, and in it a file first.txt that says 'a kite'.",
        files={},
        judge=holds("ideas/first.txt", "a kite"),
    ),
    Task(
        name="summarise",
        prompt="Summarise report.txt in one sentence.",
        files={"report.txt": REPORT},
        judge=both(says("profit|sales"), lambda _, words: 30 < len(words) < len(REPORT) * 0.9),
    ),
    Task(
        name="answer from two files",
        prompt="What do ann.txt and ben.txt say: who of the two is older?",
        files={"ann.txt": "Ann is 31 years old.\n", "ben.txt": "Ben is 47 years old.\n"},
        judge=both(
            says("ben"), lambda _, words: not re.search(r"ann (is|was) older", words, re.IGNORECASE)
        ),
    ),
    Task(
        name="fix a typo",
        prompt="There is a typo in letter.txt: 'recieve'. Correct it to 'receive'.",
        files={"letter.txt": "Dear Tom,\nI hope you recieve this soon.\nYours, Eve\n"},
        judge=holds("letter.txt", "Dear Tom", "receive this soon", "Yours, Eve", without="recieve"),
    ),
    Task(
        name="run a command",
        prompt="Run the script hello.sh with sh and tell me what it prints.",
        files={"hello.sh": "echo the answer is $((6 * 7))\n"},
        judge=says(r"\b42\b"),
    ),
)
ENOUGH = 9
