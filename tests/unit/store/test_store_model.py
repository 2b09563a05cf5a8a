"""Any sequence of operations agrees with a simple model."""

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from hermes.ports.store import AppendMessage, HideMessages, OpenSession, RecordUsage
from hermes.schema.messages import Usage
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import calling_message, session, user_message
from support.examples import at_most

PEOPLE = (OWNER, "ann", "bob", "bob2")
WORDS = ("apple", "pear", "梨", "plum")


class Open(Struct, frozen=True):
    who: str


class Say(Struct, frozen=True):
    session: int
    word: str
    calls: int = 0


class TakeBack(Struct, frozen=True):
    session: int
    seq: int


class Pay(Struct, frozen=True):
    session: int
    cost: float | None


class Delete(Struct, frozen=True):
    session: int
    who: str


numbers = st.integers(0, 4)
step = st.one_of(
    st.builds(Open, st.sampled_from(PEOPLE)),
    st.builds(Say, numbers, st.sampled_from(WORDS), st.integers(0, 2)),
    st.builds(TakeBack, numbers, st.integers(0, 5)),
    st.builds(Pay, numbers, st.sampled_from([0.5, None])),
    st.builds(Delete, numbers, st.sampled_from(PEOPLE)),
)


class Model(Struct):
    who: str
    rows: list[tuple[str, int, bool]]
    costs: list[float | None]

    @property
    def visible(self) -> list[tuple[int, str, int]]:
        return [(seq, w, c) for seq, (w, c, shown) in enumerate(self.rows, 1) if shown]


async def apply_steps(store: SqliteStore, clock: FakeClock, steps: list) -> dict[str, Model]:
    world: dict[str, Model] = {}
    for number, one in enumerate(steps):
        names = sorted(world)
        name = names[one.session % len(names)] if not isinstance(one, Open) and names else ""
        match one:
            case Open(who):
                name = f"s{number:03}"
                await store.commit(OpenSession(session(clock, name, principal=who)))
                world[name] = Model(who, [], [])
            case Say(_, word, calls) if name:
                message = calling_message(*[word] * calls) if calls else user_message(word)
                await store.commit(AppendMessage(name, "r", message, clock.now()))
                world[name].rows.append((word, calls, True))
            case TakeBack(_, seq) if name:
                await store.commit(HideMessages(name, seq))
                world[name].rows = [
                    (w, c, shown and position < seq)
                    for position, (w, c, shown) in enumerate(world[name].rows, 1)
                ]
            case Pay(_, cost) if name:
                await store.commit(RecordUsage(name, "r", "m", "p", Usage(1), cost, clock.now()))
                world[name].costs.append(cost)
            case Delete(_, who) if name:
                may = who in (OWNER, world[name].who)
                assert await store.archive_for(who).delete([name]) == int(may)
                if may:
                    del world[name]
            case _:
                pass
    return world


async def compare(store: SqliteStore, who: str, world: dict[str, Model]) -> None:
    archive = store.archive_for(who)
    mine = {name: model for name, model in world.items() if who in (OWNER, model.who)}
    digests = {row.session.id: row for row in await archive.list(SessionFilter(), 500)}
    assert set(digests) == set(mine)
    for name, model in mine.items():
        digest = digests[name]
        assert digest.messages == len(model.visible)
        assert digest.tool_calls == sum(calls for _, _, calls in model.visible)
        assert digest.cost == (None if None in model.costs else sum(c or 0 for c in model.costs))
        assert digest.preview == next((w for _, w, calls in model.visible if not calls), "")
        assert [row.seq for row in await archive.messages(name)] == [s for s, _, _ in model.visible]
    for name in set(world) - set(mine):
        assert list(await archive.messages(name)) == []
        assert list(await archive.usage(name)) == []
    assert sum(use.calls for use in await archive.usage()) == sum(
        len(model.costs) for model in mine.values()
    )
    for word in WORDS:
        for query in (word, word[1:]) if len(word) > 3 else (word,):
            found = {(hit.session.id, hit.seq) for hit in (await archive.search(query, 500)).hits}
            assert found == {
                (name, seq) for name, m in mine.items() for seq, w, _ in m.visible if query in w
            }


def run(body: Callable[[SqliteStore, FakeClock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = FakeClock()
        with tempfile.TemporaryDirectory() as folder:
            async with open_store(Path(folder) / "hermes.db", clock) as store:
                await body(store, clock)
                assert list(await store.maintenance.integrity()) == []

    anyio.run(main)


@pytest.mark.slow
@at_most(40)
@given(steps=st.lists(step, max_size=40))
def test_store_agrees_with_the_model_for_every_principal(steps: list):
    async def body(store: SqliteStore, clock: FakeClock) -> None:
        world = await apply_steps(store, clock, [Open(OWNER), Open("ann"), *steps])
        for who in (*PEOPLE, "nobody"):
            await compare(store, who, world)

    run(body)
