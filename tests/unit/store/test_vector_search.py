"""Messages are found by meaning, only by principals who may see them."""

import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import apsw
import numpy as np
import pytest
from numpy.typing import NDArray

from hermes.ports.store import AppendMessage, HideMessages, OpenSession
from hermes.schema.messages import Assistant, Result, Stop, Text, User
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SearchFilter, SearchHit, Session
from hermes.store.database_file import open_writer
from hermes.store.search import SearchRequest, fuse_rankings
from hermes.store.sqlite import SqliteStore, open_store
from hermes.store.vector_search import VectorSearch, _VectorBuilder, has_packages
from hermes.store.vectors import Embedder
from hermes.testing.clock import FakeClock
from support.cli_process import TEST_TIMEOUT

pytestmark = pytest.mark.slow

MEANINGS = {
    "automobile trouble, motorway": "My car broke down on the highway near Lyon yesterday.",
    "feline medication": "The cat has to take her pills twice a day after meals.",
    "physician visit": "I have an appointment with the doctor on Thursday morning.",
    "cheap flights abroad": "Find me inexpensive airline tickets to Portugal.",
    "kids bedtime stories": "My children love fairy tales before they sleep.",
    "database slowness": "Postgres queries take forever since the migration.",
    "wedding gift ideas": "We need a present for Anna's marriage ceremony.",
    "employment resignation": "I want to quit my job at the end of June.",
    "home heating repair": "The boiler in our house is leaking and must be fixed.",
    "allergic to peanuts": "Never put nuts in a recipe for me, they make me sick.",
    "currency conversion": "How many euros do I get for 300 dollars?",
    "garbage collection day": "The trash is picked up every second Tuesday.",
    "laptop won't start": "My notebook computer does not boot any more.",
    "learning musical instruments": "I am taking piano lessons on weekends.",
    "infant sleep problems": "The baby wakes up five times a night.",
    "tax declaration deadline": "I must file my income return with the revenue office by May.",
    "vegetarian dinner": "Please suggest an evening meal without meat.",
    "soccer results": "Who won the football match last night?",
    "apartment lease": "Our landlord wants to raise the rent of the flat.",
    "container deployment": "We ship the service as docker images to kubernetes.",
    "password forgotten": "I cannot log in because I lost my credentials.",
    "exercise routine": "I go running and lift weights three times a week.",
    "grandmother's birthday celebration": "We throw a party for grandma when she turns ninety.",
    "holiday near an ocean": "Our summer vacation will be at the beach in Greece.",
    "memory leak": "The process keeps eating RAM until it is killed.",
    "gardening advice": "The tomatoes in my plants bed have yellow leaves.",
    "bicycle maintenance": "The chain of my bike jumps off when I shift gears.",
    "university exam": "She studies for her final college test in chemistry.",
    "weather forecast": "Will it rain tomorrow in Hamburg?",
    "stolen phone": "Somebody took my mobile out of my pocket on the train.",
}
OPENINGS = ("Let us discuss", "I read about", "Can you explain", "We decided on", "Remind me of")
MATTERS = (
    "the quarterly budget", "a new logo in blue", "stone age tools", "the history of Rome",
    "wind turbines", "chess openings", "printer drivers", "the stock market", "the moon landing",
    "tea ceremonies", "railway timetables", "wooden furniture", "opera singers", "glacier ice",
    "a crossword puzzle", "the fire alarm test", "coffee roasting", "marine biology",
)  # fmt: skip
OTHER = [f"{opening} {matter}." for opening in OPENINGS for matter in MATTERS]
GUEST = "telegram:77"


async def begin(store: SqliteStore, name: str, principal: str = OWNER, source: str = "cli") -> None:
    session = Session(id=name, started_at=FakeClock().now(), principal=principal, source=source)
    await store.commit(OpenSession(session))


async def say(store: SqliteStore, name: str, *texts: str) -> None:
    now = FakeClock().now()
    expected = [User(f"{name}-{n}-{len(text)}", (Text(text),)) for n, text in enumerate(texts)]
    await store.commit(*(AppendMessage(name, "run", one, now) for one in expected))


async def ready(store: SqliteStore) -> None:
    """Wait for all vectors; a search itself waits only two seconds."""
    with anyio.fail_after(TEST_TIMEOUT):
        while not await store.maintenance.build_vectors():
            pass


async def recalled(store: SqliteStore, query: str, who: str = OWNER, limit: int = 5) -> list[str]:
    await ready(store)
    found = await store.archive_for(who).search_by_meaning(query, limit)
    return [hit.snippet for hit in found.hits]


def test_extra_is_installed():
    assert has_packages()


async def test_paraphrased_questions_find_their_messages(
    store: SqliteStore,
):
    await begin(store, "s")
    await say(store, "s", *MEANINGS.values(), *OTHER)
    await ready(store)
    archive = store.archive_for(OWNER)
    with_meaning = by_words = 0
    for question, expected in MEANINGS.items():
        with_meaning += expected in [
            hit.snippet for hit in (await archive.search_by_meaning(question, 5)).hits
        ]
        by_words += expected in [hit.snippet for hit in (await archive.search(question, 5)).hits]
    assert by_words == 0
    assert with_meaning >= 27


async def test_unrelated_query_finds_nothing(store: SqliteStore):
    await begin(store, "s")
    await say(store, "s", *MEANINGS.values())
    assert await recalled(store, "zzqx") == []


async def test_messages_of_other_principals_are_never_found(store: SqliteStore):
    await begin(store, "mine")
    await say(store, "mine", *["My cat takes pills."] * 600)
    await begin(store, "theirs", GUEST)
    await say(store, "theirs", "Our dog needs medicine.", "Trains are late.")
    assert await recalled(store, "feline medication", GUEST) == ["Our dog needs medicine."]
    assert await recalled(store, "feline medication", "telegram:78") == []
    everything = await recalled(store, "feline medication", limit=2_000)
    assert "Our dog needs medicine." not in everything[:5]
    assert "My cat takes pills." in everything


async def test_role_filter_applies(store: SqliteStore):
    now = FakeClock().now()
    await begin(store, "s")
    texts = "The cat takes pills.", "Cats need their drugs.", "Feline medicine: 2 pills"
    await store.commit(
        AppendMessage("s", "run", User("u", (Text(texts[0]),)), now),
        AppendMessage("s", "run", Assistant("a", (Text(texts[1]),), Stop.END), now),
        AppendMessage("s", "run", Result("r", "c", (Text(texts[2]),)), now),
    )
    await ready(store)
    archive = store.archive_for(OWNER)
    for role, expected in (("user", [0]), ("assistant", [1]), ("result", []), (None, [0, 1])):
        hits = (await archive.search_by_meaning("kitten medication", 9, role)).hits
        assert sorted(hit.snippet for hit in hits) == sorted(texts[index] for index in expected)


async def test_search_of_one_source_is_not_crowded_out_by_another(store: SqliteStore):
    await begin(store, "s", source="web")
    await say(store, "s", *["My cat takes pills."] * 600)
    await begin(store, "t", source="cli")
    await say(store, "t", "Our dog needs medicine.")
    await ready(store)
    where = SearchFilter(source="cli")
    archive = store.archive_for(OWNER)
    (hit,) = (await archive.search_by_meaning("feline medication", 5, where=where)).hits
    assert hit.snippet == "Our dog needs medicine."


async def test_phrases_and_prefixes_search_words_only(store: SqliteStore):
    await begin(store, "s")
    await say(store, "s", "The cat takes pills.")
    assert await recalled(store, '"feline medication"') == []
    assert await recalled(store, "medicat*") == []


async def test_late_passage_of_a_long_message_is_found(store: SqliteStore):
    await begin(store, "s")
    minutes = "The committee met again and approved the minutes of last month. " * 18
    pills = "The cat must take her pills, and the cat hates pills. " * 9
    await say(store, "s", minutes + pills + minutes)
    await ready(store)
    (hit,) = (await store.archive_for(OWNER).search_by_meaning("kitten medication")).hits
    assert (hit.seq, "cat hates pills" in hit.snippet) == (1, True)


async def test_later_messages_are_found(store: SqliteStore):
    await begin(store, "s")
    await say(store, "s", *OTHER)
    assert await recalled(store, "feline medication") == []
    await say(store, "s", "The cat takes pills.")
    assert await recalled(store, "feline medication") == ["The cat takes pills."]


async def test_hidden_or_deleted_messages_are_not_found(store: SqliteStore):
    await begin(store, "s")
    await begin(store, "t")
    await say(store, "s", "Hello.", "The cat takes pills.")
    await say(store, "t", "Cats get their drugs at noon.")
    assert len(await recalled(store, "feline medication")) == 2
    await store.commit(HideMessages("s", 2))
    await store.archive_for(OWNER).delete(["t"])
    assert await recalled(store, "feline medication") == []


async def test_reused_id_finds_the_new_message(store: SqliteStore):
    await begin(store, "old")
    await say(store, "old", "The cat takes pills.")
    assert await recalled(store, "feline medication") == ["The cat takes pills."]
    await store.archive_for(OWNER).delete(["old"])
    await begin(store, "new")
    await say(store, "new", "Who won the football match last night?")
    assert await recalled(store, "feline medication") == []
    assert await recalled(store, "soccer game") == ["Who won the football match last night?"]


async def test_vectors_of_other_weights_are_recomputed(path: Path, clock: FakeClock):
    async with open_store(path, clock) as store:
        await begin(store, "s")
        await say(store, "s", "The cat takes pills.", *OTHER)
        assert await recalled(store, "feline medication") == ["The cat takes pills."]
    with closing(open_writer(path)) as connection:
        connection.execute("UPDATE vector_state SET made_by = 'others'")
        connection.execute("UPDATE vectors SET body = zeroblob(256)")
    async with open_store(path, clock) as store:
        assert await recalled(store, "feline medication") == ["The cat takes pills."]


@pytest.mark.parametrize("body", [b"short", b"", bytes(257)])
async def test_damaged_vector_is_skipped(path: Path, clock: FakeClock, body: bytes):
    async with open_store(path, clock) as store:
        await begin(store, "s")
        await say(store, "s", "The cat takes pills.", *OTHER)
        await ready(store)
        with closing(open_writer(path)) as connection:
            connection.execute(
                "UPDATE vectors SET body = ? WHERE message = (SELECT max(id) FROM messages)",
                (body,),
            )
        assert await recalled(store, "feline medication") == ["The cat takes pills."]
        with closing(open_writer(path)) as connection:
            connection.execute("UPDATE vectors SET body = ?", (body,))
        assert await recalled(store, "feline medication") == []
        assert await recalled(store, "pills") == ["The cat takes >>>pills<<<."]


async def test_search_falls_back_to_words(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
):
    async with open_store(path, clock) as store:
        await begin(store, "s")
        await say(store, "s", "The cat takes pills.", *OTHER)
        await ready(store)
        with closing(open_writer(path)) as connection:
            connection.execute("UPDATE vectors SET part = 3000")
        assert await recalled(store, "pills") == ["The cat takes >>>pills<<<."]
    assert "this search only used words" in caplog.text


async def test_two_processes_compute_each_vector_once(path: Path, clock: FakeClock):
    async with open_store(path, clock) as one, open_store(path, clock) as other:
        await begin(one, "s")
        await say(one, "s", *MEANINGS.values(), *OTHER)
        async with anyio.create_task_group() as group:
            group.start_soon(recalled, one, "anything")
            group.start_soon(recalled, other, "anything")
        assert await recalled(other, "feline medication") == [MEANINGS["feline medication"]]
        assert await one.maintenance.integrity() == []
    with closing(apsw.Connection(str(path))) as check:
        (count,) = check.execute("SELECT count(*) FROM vectors").fetchone()
        assert count == len(MEANINGS) + len(OTHER)


async def test_store_closes_while_vectors_are_computed(path: Path, clock: FakeClock):
    with anyio.fail_after(TEST_TIMEOUT):
        async with open_store(path, clock) as store:
            await begin(store, "s")
            await say(store, "s", *OTHER * 30)
            async with anyio.create_task_group() as group:
                group.start_soon(store.maintenance.build_vectors)
                await store.archive_for(OWNER).search("anything")
                group.cancel_scope.cancel()


class BrokenEmbedder(Embedder):
    name = "broken"

    def __init__(self) -> None:
        """Without weights."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise ValueError("no such weights")


async def test_broken_vector_thread_is_logged_and_not_awaited(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
):
    await begin(store, "s")
    await say(store, "s", "hello")
    builder = _VectorBuilder(path, BrokenEmbedder())
    with anyio.fail_after(TEST_TIMEOUT):
        wait = partial(builder.wait_for, 1, None)
        assert not await anyio.to_thread.run_sync(wait, abandon_on_cancel=True)
        await builder.close()
    assert "computing vectors of" in caplog.text
    assert "no such weights" in caplog.text


async def test_without_the_extra_only_words_are_searched(store: SqliteStore, path: Path):
    await begin(store, "s")
    await say(store, "s", "The cat takes pills.")
    vector_search = VectorSearch(path, needs=("a_package_that_nobody_has",))
    wanted = SearchRequest.parse("feline medication", limit=5, role=None, principal=OWNER)

    async def read(_: object) -> object:
        raise AssertionError("nothing is read")

    assert await vector_search.find(wanted, read) == []  # type: ignore[arg-type]
    await vector_search.close()


def test_vector_packages_are_loaded_on_first_use(tmp_path: Path):
    program = """
import sys, anyio
from pathlib import Path
from hermes.kit.clock import SystemClock
from hermes.store.sqlite import open_store

async def main():
    async with open_store(Path(sys.argv[1]), SystemClock()) as store:
        await store.archive_for("owner").search("anything")

anyio.run(main)
heavy = {"numpy", "tokenizers", "wordllama", "hermes.store.vector_search", "hermes.store.vectors"}
print(*heavy & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "hermes.db")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_common_hits_come_first_without_duplicates():
    session = Session(id="s", started_at=FakeClock().now())

    def hit(seq: int, snippet: str = "") -> SearchHit:
        return SearchHit(
            session=session, seq=seq, at=session.started_at, role="user", snippet=snippet
        )

    words = [hit(1), hit(2, "by words")]
    meaning = [hit(3), hit(2, "by meaning"), hit(4)]
    both = fuse_rankings(words, meaning, 3)
    assert [one.seq for one in both] == [2, 1, 3]
    assert both[0].snippet == "by words"
