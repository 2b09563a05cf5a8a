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

FEWEST = 40
Models = Callable[[Script], str]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    """The address of a mock for each script, in a process of its own."""
    folder = tmp_path_factory.mktemp("models")
    with (
        fake_model_process(folder / "faulty", SCRIPT) as faulty,
        fake_model_process(folder / "locked", WRONG_KEY_SCRIPT) as locked,
    ):
        yield lambda script: locked.url if script is WRONG_KEY_SCRIPT else faulty.url


def place_of(world: FaultScenario, root: Path, models: Models) -> FaultHome:
    return FaultHome(root, world, models(world.script or SCRIPT))


@pytest.mark.parametrize(
    ("world", "said"), [pytest.param(*row, id=f"{row[0].name}-{row[1].name}") for row in ROWS]
)
def test_a_fault_is_tested_or_cannot_come_up_at_each_surface(
    world: FaultScenario, said: ExpectedMessage
) -> None:
    """A reason is a sentence, nowhere given in vain, and never for all surfaces."""
    tested = {surface for one, surface in SCENARIO_SURFACES if one is world}
    assert tested
    assert tested | {*world.cannot} == {*Surface}
    assert not tested & {*world.cannot}
    assert all(len(why.split()) >= 4 and why.endswith(".") for why in world.cannot.values())
    assert {*world.differs} <= tested
    assert said.cause
    assert said.step


def test_there_are_enough_of_them() -> None:
    assert len(ROWS) >= FEWEST
    assert len({(world.name, said.name) for world, said in ROWS}) == len(ROWS)
    assert {surface for _, surface in SCENARIO_SURFACES} == {*Surface}


def _station(world: FaultScenario, surface: Surface) -> object:
    marks = [pytest.mark.soak] if world.long and surface is not Surface.CHAT else []
    return pytest.param(world, surface, id=f"{surface}-{world.name}", marks=marks)


@pytest.mark.parametrize(("world", "surface"), [_station(*one) for one in SCENARIO_SURFACES])
def test_one_cause_and_one_next_step(
    world: FaultScenario, surface: Surface, tmp_path: Path, models: Models
) -> None:
    place = place_of(world, tmp_path, models)
    before = place.contents()
    if world is OLD_PYTHON:
        heard = list(on_old_python(place, surface))
    else:
        heard = list(SURFACES[surface](place))
    assert [one.said for one in heard] == list(world.at(surface))
    for said, told, code in heard:
        check_message(said, told)
        assert code in {None, said.exit_code}
    if surface is not Surface.CHAT and "PORT" not in world.settings:
        after = place.contents()
        assert {name: after.get(name) for name in before} == before
    if surface in {Surface.PROMPT, Surface.PLAIN} and world.moment is FaultMoment.TURN:
        # Whatever was said is there, although nobody could answer; without a model nothing is.
        asked = [one.name for one in world.faults if one.exit_code == 1 and world.kept]
        assert sorted(place.questions()) == sorted(asked)
