"""`hermes webhook`: routes are created, listed, tested and removed."""

import json
from pathlib import Path

import aiohttp
import anyio
import anyio.to_thread
import pytest

from hermes.app.channels import open_process_resources
from hermes.channels.webhook.channel import open_channel
from hermes.channels.webhook.signatures import Scheme
from hermes.cli.arguments.gateway import SCHEMES
from hermes.config.sections.messaging import Platform
from hermes.kit.clock import SystemClock
from hermes.ports.channel import ChannelDeps
from hermes.store.blobs import FileBlobs
from support.channel_deps import admit_all
from support.cli_process import CliResult, HermesCli
from support.webhooks import WebhookHarness, inbound_text


@pytest.fixture
def hermes(tmp_path: Path) -> HermesCli:
    one = HermesCli(tmp_path, "http://127.0.0.1:9")
    one.configure("platforms:\n  webhook:\n    enabled: true\n")
    return one


def secret_in(ran: CliResult) -> str:
    return next(line.split()[1] for line in ran.out.splitlines() if line.startswith("Secret"))


def test_list_is_empty_at_first(hermes: HermesCli) -> None:
    ran = hermes("webhook", "list")
    assert (ran.code, ran.out) == (0, "")
    assert "hermes webhook subscribe NAME" in ran.err
    assert hermes("webhook", "list", "--json") == (0, "", "")


def test_route_is_created_listed_and_removed(hermes: HermesCli) -> None:
    words = ["--prompt", "Look at {a}", "--events", "push, issues", "--filter", "a=1"]
    made = hermes("webhook", "subscribe", "github", *words, "--deliver", "telegram:5")
    assert made.code == 0
    assert "URL     http://127.0.0.1:8644/webhooks/github\n" in made.out
    secret = secret_in(made)
    assert len(secret) == 64
    assert "not shown again" in made.err
    assert "Try it: hermes webhook test github\n" in made.err
    file = hermes.home / "webhook_subscriptions.json"
    assert file.stat().st_mode & 0o777 == 0o600
    (entry,) = json.loads(file.read_text()).values()
    assert entry.pop("created_at")
    assert entry == {
        "secret": secret,
        "signature": "v2",
        "prompt": "Look at {a}",
        "events": ["push", "issues"],
        "filters": [{"field": "a", "equals": "1"}],
        "deliver": "telegram:5",
    }
    for flags in ([], ["--json"]):
        listed = hermes("webhook", "list", *flags)
        assert secret not in listed.out + listed.err
        assert "telegram:5" in listed.out
    assert hermes("webhook", "list", "--json").events == [
        {
            "name": "github",
            "url": "http://127.0.0.1:8644/webhooks/github",
            "source": "subscription",
            "state": "on",
            "events": ["issues", "push"],
            "deliver": "telegram:5",
            "deliver_only": False,
            "description": "",
            "signature": "v2",
            "secret": "[redacted]",
            "problems": [],
        }
    ]
    again = hermes("webhook", "subscribe", "github")
    assert (again.code, again.out) == (2, "")
    assert "already" in again.err
    removed = hermes("webhook", "remove", "github")
    assert removed.code == 0
    assert json.loads(file.read_text()) == {}
    gone = hermes("webhook", "remove", "github")
    assert gone.code == 2
    assert "Unknown route: 'github'." in gone.err


def test_signature_scheme_belongs_to_the_route(hermes: HermesCli) -> None:
    made = hermes(
        "webhook", "subscribe", "hub", "--signature", "github", "--form", "--allow-repeats"
    )
    assert "Signed  in the header x-hub-signature-256\n" in made.out
    hermes("webhook", "subscribe", "open", "--secret", "INSECURE_NO_AUTH")
    table = json.loads((hermes.home / "webhook_subscriptions.json").read_text())
    hub = table["hub"]
    assert (hub["signature"], hub["form"], hub["allow_repeats"]) == ("github", True, True)
    assert "signature" not in table["open"]
    wrong = hermes("webhook", "subscribe", "c", "--signature", "rot13")
    assert (wrong.code, wrong.out) == (2, "")


def test_offered_schemes_match_the_channel() -> None:
    assert list(SCHEMES) == [scheme.value for scheme in Scheme]


def test_given_secret_is_not_printed(hermes: HermesCli) -> None:
    made = hermes("webhook", "subscribe", "a", "--secret", "my-very-own-secret")
    assert made.code == 0
    assert "my-very-own-secret" not in made.out + made.err
    short = hermes("webhook", "subscribe", "b", "--secret", "short")
    assert "could be guessed" in short.err
    none = hermes("webhook", "subscribe", "c", "--secret", "INSECURE_NO_AUTH")
    assert "without a secret" in none.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a/b"], "is not a valid route name"),
        (["a", "--filter", "action"], "is not a filter"),
        (["a", "--deliver", "git hub"], "is not a delivery target"),
        (["a", "--deliver", "github_comment"], "does not support yet"),
        (["a", "--deliver-only"], "no target to deliver to"),
        (["set"], "already exists in the settings"),
        ([], "name"),
    ],
)
def test_invalid_route_is_rejected(hermes: HermesCli, words: list[str], expected: str) -> None:
    hermes.configure(
        "platforms: {webhook: {extra: {routes: {set: {secret: a-long-enough-secret}}}}}"
    )
    ran = hermes("webhook", "subscribe", *words)
    assert (ran.code, ran.out) == (2, "")
    assert expected in ran.err
    assert not (hermes.home / "webhook_subscriptions.json").exists()


def test_routes_from_settings_are_listed_but_not_removed(hermes: HermesCli) -> None:
    hermes.configure(
        "platforms: {webhook: {extra: {port: 9000, routes: {set: {secret: '${S}', script: x.py}}}}}"
    )
    (row,) = hermes("webhook", "list", "--json", S="a-long-enough-secret").events
    assert (row["source"], row["state"]) == ("settings", "not served")
    assert row["url"] == "http://127.0.0.1:9000/webhooks/set"
    table = hermes("webhook", "list", S="a-long-enough-secret")
    assert "script" in table.err
    assert "turned off" in table.err
    removed = hermes("webhook", "remove", "set", S="a-long-enough-secret")
    assert removed.code == 2
    assert "platforms.webhook.extra.routes.set" in removed.err
    for wrong in (hermes("webhook", "list", S=""), hermes("webhook", "list")):
        assert (wrong.code, wrong.out) == (78, "")
        assert "platforms.webhook.extra.routes.set: secret" in wrong.err


def test_damaged_file_is_not_changed(hermes: HermesCli) -> None:
    file = hermes.home / "webhook_subscriptions.json"
    file.write_text("{")
    for words in (["list"], ["subscribe", "a"], ["remove", "a"], ["test", "a"]):
        ran = hermes("webhook", *words)
        assert (ran.code, ran.out) == (78, "")
        assert "is damaged" in ran.err
    assert file.read_text() == "{"


def test_profiles_have_their_own_urls(hermes: HermesCli) -> None:
    work = hermes.home / "profiles" / "work"
    work.mkdir(parents=True)
    made = hermes("-p", "work", "webhook", "subscribe", "a", WEBHOOK_PORT="7000")
    assert "http://127.0.0.1:7000/p/work/webhooks/a" in made.out
    hermes.configure("{multiplex_profiles: true, platforms: {webhook: {extra: {port: 7001}}}}")
    (work / "config.yaml").write_text("platforms: {webhook: {extra: {port: 7002, host: '::'}}}")
    (row,) = hermes("-p", "work", "webhook", "list", "--json").events
    assert row["url"] == "http://127.0.0.1:7001/p/work/webhooks/a"
    hermes.configure("{}")
    (row,) = hermes("-p", "work", "webhook", "list", "--json").events
    assert row["url"] == "http://[::1]:7002/p/work/webhooks/a"
    assert hermes("webhook", "list", "--json").events == []


def test_testing_an_unserved_route_fails(hermes: HermesCli) -> None:
    hermes("webhook", "subscribe", "a")
    ran = hermes("webhook", "test", "a", WEBHOOK_PORT="9")
    assert (ran.code, ran.out) == (1, "")
    assert "Cannot reach http://127.0.0.1:9/webhooks/a" in ran.err
    assert "platforms.webhook.enabled" in ran.err
    assert "Unknown route" in hermes("webhook", "test", "b").err
    wrong = hermes("webhook", "test", "a", "--payload", "{")
    assert (wrong.code, wrong.out) == (2, "")
    assert "not JSON" in wrong.err


async def test_route_of_a_running_listener_can_be_tested(hermes: HermesCli) -> None:
    async with aiohttp.ClientSession() as session, open_process_resources() as shares:
        parts = ChannelDeps(
            name="webhook",
            profile="default",
            home=hermes.home,
            settings=Platform(extra={"port": 0}),
            env={},
            current_env=dict,
            clock=SystemClock(),
            shared=shares,
            blobs=FileBlobs(hermes.home / "blobs"),
            admits=admit_all,
        )
        async with open_channel(parts) as channel, anyio.create_task_group() as group:
            listener = await shares.get_or_open("webhook", lambda: pytest.fail("there is one"))
            one = WebhookHarness(listener, parts.clock, session)
            group.start_soon(channel.run, one.deliver)

            async def run(*words: str) -> CliResult:
                port = str(listener.port)
                return await anyio.to_thread.run_sync(
                    lambda: hermes("webhook", *words, WEBHOOK_PORT=port)
                )

            await run("subscribe", "a", "--prompt", "{event_type}: {n}", "--events", "tick")
            first = await run("test", "a", "--payload", '{"type": "tick", "n": 5}')
            hint = "see also: hermes sessions list --source webhook"
            assert (first.code, first.err) == (
                0,
                f"The answer goes to the log: hermes logs; {hint}\n",
            )
            assert first.out.startswith('202 {"status":"accepted"')
            assert ">5</data-" in inbound_text(one.inbound[0])
            assert (await run("test", "a")).out.startswith("202")
            await run("subscribe", "hub", "--signature", "github")
            for _ in range(2):
                assert (await run("test", "hub")).out.startswith("202")
            ignored = await run("test", "a", "--payload", "{}")
            assert (ignored.code, ignored.out[:26]) == (0, '200 {"status":"ignored","r')
            scalar = await run("test", "a", "--payload", "5")
            assert scalar.code == 1
            assert scalar.out.startswith("400")
            await run("subscribe", "open", "--secret", "INSECURE_NO_AUTH")
            assert (await run("test", "open")).out.startswith("202")
            await run("remove", "a")
            assert len(one.inbound) == 5
            group.cancel_scope.cancel()


def test_completion_offers_webhook(hermes: HermesCli) -> None:
    script = hermes("completion", "bash").out
    assert "hermes webhook subscribe" in script
    assert "--deliver-only" in script
