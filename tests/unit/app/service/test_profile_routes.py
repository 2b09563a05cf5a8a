"""The most specific profile route wins."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.app.service.router import routed_profile
from hermes.config.sections.messaging import ProfileRoute
from hermes.session.keys import SessionSource
from support.cases import cases

HERE = SessionSource(
    platform="discord",
    chat_type="thread",
    chat_id="c",
    thread_id="t",
    guild_id="g",
    parent_chat_id="p",
)


def route(profile: str, **fields: object) -> ProfileRoute:
    return ProfileRoute(profile=profile, **fields)


def test_no_matching_route_gives_no_profile() -> None:
    assert routed_profile(HERE, []) is None
    assert routed_profile(HERE, [route("a", platform="slack"), route("b", chat_id="x")]) is None


@cases(
    "other",
    [
        {"platform": "slack"},
        {"guild_id": "x"},
        {"chat_id": "x"},
        {"thread_id": "x"},
        {"enabled": False},
    ],
)
def test_every_field_of_a_route_must_match(other: dict[str, object]) -> None:
    full = {"platform": "discord", "guild_id": "g", "chat_id": "c", "thread_id": "t"}
    assert routed_profile(HERE, [route("a", **full)]) == "a"
    assert routed_profile(HERE, [route("a", **full | other)]) is None


def test_thread_beats_chat_beats_guild_beats_platform() -> None:
    routes = [
        route("platform", platform="discord"),
        route("guild", guild_id="g"),
        route("chat", chat_id="c"),
        route("chat and guild", chat_id="c", guild_id="g"),
        route("thread", thread_id="t"),
    ]
    while routes:
        assert routed_profile(HERE, routes) == routes[-1].profile
        routes.pop()


def test_thread_beats_chat_and_guild_together() -> None:
    assert (
        routed_profile(HERE, [route("a", chat_id="c", guild_id="g"), route("b", thread_id="t")])
        == "b"
    )


def test_parent_chat_matches_but_own_route_wins() -> None:
    parent, own = route("parent", chat_id="p"), route("own", chat_id="c")
    assert routed_profile(HERE, [parent]) == "parent"
    assert routed_profile(HERE, [parent, own]) == routed_profile(HERE, [own, parent]) == "own"


def test_first_of_equal_routes_wins_and_empty_profile_never() -> None:
    assert routed_profile(HERE, [route("", chat_id="c"), route("a"), route("b")]) == "a"


def test_chat_without_ids_matches_no_route_with_ids() -> None:
    bare = SessionSource(platform="discord")
    asks = ({"chat_id": "c"}, {"thread_id": "t"}, {"guild_id": "g"})
    assert all(routed_profile(bare, [route("a", **fields)]) is None for fields in asks)


some = st.sampled_from(["", "", "1", "2"])
routes = st.lists(
    st.builds(
        ProfileRoute,
        platform=st.sampled_from(["", "discord", "slack"]),
        profile=st.sampled_from(["a", "b", "c"]),
        guild_id=some,
        chat_id=some,
        thread_id=some,
        enabled=st.booleans(),
    ),
    max_size=6,
)
places = st.builds(
    SessionSource,
    platform=st.sampled_from(["discord", "slack"]),
    chat_id=st.sampled_from(["1", "2"]),
    thread_id=st.sampled_from([None, "1", "2"]),
    guild_id=st.sampled_from([None, "1", "2"]),
)


@given(places, routes)
def test_routing_matches_reference_implementation(place: SessionSource, given_routes: list) -> None:
    best, found = -1, None
    for one in given_routes:
        question = {
            "platform": one.platform,
            "guild_id": one.guild_id,
            "chat_id": one.chat_id,
            "thread_id": one.thread_id,
        }
        if one.enabled and all(
            getattr(place, key) == value for key, value in question.items() if value
        ):
            score = 8 * bool(one.thread_id) + 4 * bool(one.chat_id) + 2 * bool(one.guild_id)
            if score > best:
                best, found = score, one.profile
    assert routed_profile(place, given_routes) == found
