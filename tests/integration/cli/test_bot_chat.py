"""`--deliver bot-chat`: the result of a job is answered in a session of its profile, or another."""

from hermes.testing.fake_openai.script import Reply, Rule, Script
from support.cli_process import HermesCli

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
    assert "Unknown profile: bob" in unknown.err
    words = ("every 1h", "count the mails", "--name", "mails", "--deliver", "bot-chat,bot-chat:ada")
    assert hermes("cron", "create", *words).code == 0
    assert hermes("cron", "run", "mails").code == 0
    for profile in ("default", "ada"):
        chosen = ("--profile", profile)
        assert hermes(*chosen, "cron", "tick").code == 0
        shown = hermes(*chosen, "sessions", "show", "Bot Chat").out
        assert shown.count("42 mails.") == 1
        assert shown.count("Noted: 42.") == 1
