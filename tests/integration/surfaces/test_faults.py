"""Every fault at every surface: one cause, one next step, the right code, and nothing is lost."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes.testing.fake_openai import Script
from support.cli_process import fake_model_process
from support.faults.models import SCRIPT, WRONG_KEY_SCRIPT
from support.faults.scenarios import (
    ExpectedMessage,
    FaultMoment,
    FaultScenario,
    Surface,
    check_message,
)
from support.faults.surfaces import SURFACES, FaultHome, on_old_python
from support.faults.table import OLD_PYTHON, ROWS, SCENARIO_SURFACES

MIN_ROWS = 40
Models = Callable[[Script], str]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    """Return the URL of a fake model for a script, each in its own process."""
    folder = tmp_path_factory.mktemp("models")
    with (
        fake_model_process(folder / "faulty", SCRIPT) as faulty,
        fake_model_process(folder / "locked", WRONG_KEY_SCRIPT) as locked,
    ):
        yield lambda script: locked.url if script is WRONG_KEY_SCRIPT else faulty.url


def open_home(scenario: FaultScenario, root: Path, models: Models) -> FaultHome:
    return FaultHome(root, scenario, models(scenario.script or SCRIPT))


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [pytest.param(*row, id=f"{row[0].name}-{row[1].name}") for row in ROWS],
)
def test_fault_is_tested_or_excluded_at_each_surface(
    scenario: FaultScenario, expected: ExpectedMessage
) -> None:
    """Each reason is a sentence for a surface that is not tested, and never covers all surfaces."""
    tested = {surface for one, surface in SCENARIO_SURFACES if one is scenario}
    assert tested
    assert tested | {*scenario.cannot} == {*Surface}
    assert not tested & {*scenario.cannot}
    assert all(len(why.split()) >= 4 and why.endswith(".") for why in scenario.cannot.values())
    assert {*scenario.differs} <= tested
    assert expected.cause
    assert expected.step


def test_table_is_large_enough_and_unique() -> None:
    assert len(ROWS) >= MIN_ROWS
    assert len({(scenario.name, expected.name) for scenario, expected in ROWS}) == len(ROWS)
    assert {surface for _, surface in SCENARIO_SURFACES} == {*Surface}


def _surface_param(scenario: FaultScenario, surface: Surface) -> object:
    marks = [pytest.mark.soak] if scenario.long and surface is not Surface.CHAT else []
    return pytest.param(scenario, surface, id=f"{surface}-{scenario.name}", marks=marks)


@pytest.mark.parametrize(
    ("scenario", "surface"), [_surface_param(*one) for one in SCENARIO_SURFACES]
)
def test_message_has_one_cause_and_one_next_step(
    scenario: FaultScenario, surface: Surface, tmp_path: Path, models: Models
) -> None:
    fault_home = open_home(scenario, tmp_path, models)
    before = fault_home.contents()
    if scenario is OLD_PYTHON:
        observed = list(on_old_python(fault_home, surface))
    else:
        observed = list(SURFACES[surface](fault_home))
    assert [one.expected for one in observed] == list(scenario.at(surface))
    for expected, messages, code in observed:
        check_message(expected, messages)
        assert code in {None, expected.exit_code}
    if surface is not Surface.CHAT and "PORT" not in scenario.settings:
        after = fault_home.contents()
        assert {name: after.get(name) for name in before} == before
    if surface in {Surface.PROMPT, Surface.PLAIN} and scenario.moment is FaultMoment.TURN:
        # Messages are stored although there is no answer; without a model they are not.
        names = [one.name for one in scenario.faults if one.exit_code == 1 and scenario.kept]
        assert sorted(fault_home.questions()) == sorted(names)
