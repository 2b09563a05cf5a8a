"""One skill is chosen from a source with several; errors list what the source contains."""

import pytest

from hermes.app.skill_sources import choose_package
from hermes.learning.skills.document import InvalidSkill
from hermes.learning.skills.installer import find_packages

TEXT = "---\nname: {0}\ndescription: How to make {0}.\n---\n\nBoil water.\n"


def source(**skills: str) -> dict[str, bytes]:
    return {f"{folder}/SKILL.md": TEXT.format(name).encode() for folder, name in skills.items()}


def refused(files: dict[str, bytes], path: str) -> tuple[str, str]:
    with pytest.raises(InvalidSkill) as caught:
        choose_package(find_packages(files), path)
    return str(caught.value), caught.value.hint


def test_skill_is_chosen_by_name_or_folder() -> None:
    found = find_packages(source(drinks="tea", food="cake"))
    assert choose_package(found, "tea").name == "tea"
    assert choose_package(found, "food/").name == "cake"


def test_unknown_skill_is_missing_and_the_others_are_listed() -> None:
    files = source(drinks="tea", food="cake")
    assert refused(files, "soup") == ("It contains no skill soup.", "It contains: cake, tea.")


def test_one_of_several_skills_must_be_chosen() -> None:
    message = "It contains 2 skills: cake, tea."
    files = source(drinks="tea", food="cake")
    assert refused(files, "") == (message, "Choose one with --path NAME.")


def test_skills_of_the_same_name_are_chosen_by_folder() -> None:
    hint = "Choose a folder with --path FOLDER: drinks, old."
    files = source(drinks="tea", food="cake", old="tea")
    assert refused(files, "tea") == ("It contains 2 skills named tea.", hint)


def test_source_without_a_skill_is_refused() -> None:
    assert refused({"README.md": b"Nothing here."}, "") == ("It contains no SKILL.md.", "")
