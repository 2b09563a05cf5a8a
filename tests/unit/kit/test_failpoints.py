from hermes.kit.failpoints import failpoint, watch_failpoints
from support.failpoints import failpoints


def test_failpoint_without_watcher_does_nothing():
    passed: list[str] = []
    failpoint("one")
    with watch_failpoints(passed.append):
        failpoint("two")
        with watch_failpoints(lambda name: passed.append(name.upper())):
            failpoint("three")
        failpoint("four")
    failpoint("five")
    assert passed == ["two", "THREE", "four"]


def test_every_step_of_a_message_has_its_failpoints():
    found = failpoints()
    steps = {name.partition(".")[0] for name in found}
    assert steps >= {
        "channel", "intake", "commands", "actor", "runner", "recorder", "delivery", "writer",
    }  # fmt: skip
