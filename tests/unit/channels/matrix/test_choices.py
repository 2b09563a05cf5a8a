"""A reaction chooses only in the room of the question."""

from hermes.channels.matrix.choices import ChoicePosts
from hermes.channels.matrix.objects import Relation
from hermes.ports.channel import Choice, Choices, Outbound
from hermes.schema.messages import Text


def test_reaction_in_another_room_is_no_choice() -> None:
    posts = ChoicePosts(for_requester=True)
    choices = Choices((Choice("Allow", "q:once", "✅"),), requester="@ann:test")
    posts.remember("!a:test", "$1", Outbound((Text("Go?"), choices), plain="Go?"))
    reaction = Relation(rel_type="m.annotation", event_id="$1", key="✅")
    assert posts.value("!b:test", reaction, "@ann:test") == ""
    assert posts.value("!a:test", reaction, "@bob:test") == ""
    assert posts.value("!a:test", reaction, "@ann:test") == "q:once"
