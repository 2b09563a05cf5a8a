from hermes.kit.failpoints import passing, watching
from hermes.testing.failpoints import failpoints


def test_nothing_happens_unless_somebody_watches():
    passed: list[str] = []
    passing("one")
    with watching(passed.append):
        passing("two")
        with watching(lambda name: passed.append(name.upper())):
            passing("three")
        passing("four")
    passing("five")
    assert passed == ["two", "THREE", "four"]


def test_every_step_of_a_message_has_its_failpoints():
    found = failpoints()
    steps = {name.partition(".")[0] for name in found}
    assert steps >= {
        "channel", "intake", "commands", "actor", "runner", "recorder", "delivery", "writer",
    }  # fmt: skip
