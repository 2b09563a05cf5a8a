"""`--deliver bot-chat`: the result of a job is answered in a session of its profile, or another."""

import json

from hermes.testing.fake_openai.script import Reply, Rule, Script
from support.cli_process import FakeModelProcess, HermesCli

SCRIPT = Script(
    rules=[
        Rule("count the mails", [Reply("42 mails.")]),
        Rule("has delivered its result", [Reply("Noted: 42.")]),
    ]
)


def test_result_is_answered_by_the_profiles_that_the_job_names(hermes: HermesCli) -> None:
    assert hermes("profile", "create", "ada").code == 0
    unknown = hermes("cron", "create", "1s", "count the mails", "--deliver", "bot-chat:bob")
    assert unknown.code == 2
    assert "Unknown profile: 'bob'" in unknown.err
    words = ("every 1h", "count the mails", "--name", "mails", "--deliver", "bot-chat,bot-chat:ada")
    assert hermes("cron", "create", *words).code == 0
    assert hermes("cron", "run", "mails").code == 0
    for profile in ("default", "ada"):
        chosen = ("--profile", profile)
        assert hermes(*chosen, "cron", "tick").code == 0
        shown = hermes(*chosen, "sessions", "show", "Bot Chat").out
        assert shown.count("42 mails.") == 1
        assert shown.count("Noted: 42.") == 1


def test_limits_of_the_job_apply_and_other_targets_may_fail(
    hermes: HermesCli, model: FakeModelProcess
) -> None:
    chats = [{"id": one, "name": "team", "type": "group"} for one in ("1", "2")]
    directory = {"platforms": {"telegram": chats}}
    targets = ("--deliver", "telegram:#team,bot-chat")
    limits = ("--toolset", "todo", "--spend-cap", "1")
    words = ("every 1h", "count the mails", "--name", "mails", *targets, *limits)
    assert hermes("cron", "create", *words).code == 0
    (hermes.home / "channel_directory.json").write_text(json.dumps(directory))
    assert hermes("cron", "run", "mails").code == 0
    assert hermes("cron", "tick").code == 0
    assert "2 telegram chats are named '#team'" in hermes("cron", "show", "mails").out
    assert "Noted: 42." in hermes("sessions", "show", "Bot Chat").out
    answer = model.requests("has delivered its result")[-1]
    assert [tool["function"]["name"] for tool in answer["tools"]] == ["todo"]
