"""The routes of boards, at the paths and with the answers of the public system."""

from pathlib import Path
from typing import Any

import msgspec

from hermes.config.loader import load_config
from hermes.kanban.lifecycle import ClaimTerms, claim_task
from hermes.kanban.service import BoardService
from hermes.testing.fake_openai.script import Reply, Rule, Script
from support.api_server import ApiHarness, api_harness

PREFIX = "/api/plugins/kanban"


async def ask(
    api: ApiHarness, method: str, path: str, body: object = None, **headers: str
) -> dict[str, Any]:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body) if body else None
    answer = await api.ask(method, f"{PREFIX}/{path}", data, **headers)
    assert answer.status == 200, answer.body
    return answer.json


async def status(api: ApiHarness, method: str, path: str, body: bytes | None = None) -> int:
    return (await api.ask(method, f"{PREFIX}/{path}", body)).status


async def create(api: ApiHarness, title: str, **fields: object) -> str:
    made = await ask(api, "POST", "tasks", {"title": title, **fields})
    return str(made["task"]["id"])


async def test_cards_show_links_progress_comments_and_the_last_summary(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as api:
        first = await create(api, "plan", tenant="a")
        second = await create(api, "build", parents=[first])
        await ask(api, "POST", f"tasks/{first}/comments", {"body": "soon"})
        await ask(api, "PATCH", f"tasks/{second}", {"status": "done", "summary": "built"})
        board = await ask(api, "GET", "board")
        cards = {one["id"]: one for column in board["columns"] for one in column["tasks"]}
        assert cards[first]["link_counts"] == {"parents": 0, "children": 1}
        assert cards[first]["progress"] == {"done": 1, "total": 1}
        assert cards[first]["comment_count"] == 1
        assert cards[second]["latest_summary"] == "built"
        assert cards[second]["progress"] is None
        filtered = await ask(api, "GET", "board?tenant=a")
        (card,) = [one for column in filtered["columns"] for one in column["tasks"]]
        assert (card["id"], card["progress"]) == (first, {"done": 1, "total": 1})
        stats = await ask(api, "GET", "stats")
        assert stats["by_status"] == {"ready": 1, "done": 1}
        assert stats["by_assignee"] == {"-": 2}
        events = await ask(api, "GET", "events?since=1")
        assert events["events"][0]["id"] == 2
        assert events["cursor"] == board["latest_event_id"]


async def test_files_are_uploaded_downloaded_and_removed(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as api:
        task = await create(api, "plan")
        part = 'Content-Disposition: form-data; name="file"; filename="../poem é.txt"'
        form = f"--x\r\n{part}\r\nContent-Type: text/html\r\n\r\nroses\r\n--x--\r\n".encode()
        kind = "multipart/form-data; boundary=x"
        made = await ask(api, "POST", f"tasks/{task}/attachments", form, Content_Type=kind)
        number = made["attachment"]["id"]
        listed = await ask(api, "GET", f"tasks/{task}/attachments")
        assert [one["id"] for one in listed["attachments"]] == [number]
        file = await api.ask("GET", f"{PREFIX}/attachments/{number}")
        assert (file.body, file.headers["content-type"]) == (b"roses", "application/octet-stream")
        assert file.headers["content-disposition"].startswith("attachment;")
        mail = b"Subject: hi\r\n\r\n-- x is no boundary\r\n"
        form = f"--x\r\n{part}\r\nContent-Type: message/rfc822\r\n\r\n".encode()
        form += mail + b"\r\n--x--\r\n"
        made = await ask(api, "POST", f"tasks/{task}/attachments", form, Content_Type=kind)
        path = f"{PREFIX}/attachments/{made['attachment']['id']}"
        assert (await api.ask("GET", path)).body == mail
        assert await status(api, "POST", f"tasks/{task}/attachments", b"no form") == 400
        await ask(api, "DELETE", f"attachments/{number}")
        for path in (f"attachments/{number}", "attachments/x"):
            assert await status(api, "GET", path) == 404
        log = await ask(api, "GET", f"tasks/{task}/log?tail=3")
        assert (log["exists"], log["content"]) == (False, "")
        folder = Path(log["path"]).parent
        folder.mkdir(parents=True)
        Path(log["path"]).write_text("one\ntwo")
        log = await ask(api, "GET", f"tasks/{task}/log?tail=3")
        assert (log["content"], log["size_bytes"], log["truncated"]) == ("two", 7, True)


async def test_run_is_inspected_and_terminated_once(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as api:
        task = await create(api, "plan", assignee="default")
        service: BoardService = api.app.features.get("kanban")
        terms = ClaimTerms(lock="host:1", expires=service.now() + 900, pid=1)
        run = await service.write(None, lambda rows: claim_task(rows, task, terms, service.now()))
        workers = await ask(api, "GET", "workers/active")
        assert (workers["count"], workers["workers"][0]["task_title"]) == (1, "plan")
        assert (await ask(api, "GET", f"runs/{run.id}/inspect"))["alive"] is True
        ended = await ask(api, "POST", f"runs/{run.id}/terminate", {"reason": "stuck"})
        assert ended["task_id"] == task
        assert (await ask(api, "GET", f"runs/{run.id}/inspect"))["alive"] is False
        assert await status(api, "POST", f"runs/{run.id}/terminate", b"{}") == 409
        assert await status(api, "GET", "runs/99/inspect") == 404


async def test_home_channel_follows_a_task(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as api:
        home = api.app.home.config
        home.write_text("platforms: {telegram: {home_channel: '42'}}\n")
        task = await create(api, "plan")
        channels = await ask(api, "GET", f"home-channels?task_id={task}")
        shown = [(one["platform"], one["subscribed"]) for one in channels["home_channels"]]
        assert shown == [("telegram", False)]
        await ask(api, "POST", f"tasks/{task}/home-subscribe/telegram")
        channels = await ask(api, "GET", f"home-channels?task_id={task}")
        assert channels["home_channels"][0]["subscribed"] is True
        await ask(api, "DELETE", f"tasks/{task}/home-subscribe/telegram")
        assert await status(api, "POST", f"tasks/{task}/home-subscribe/slack") == 404


async def test_settings_of_boards_are_read_and_changed(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as api:
        home = api.app.home
        home.config.write_text("# mine\ndashboard: {kanban: {default_tenant: acme}}\n")
        assert await ask(api, "GET", "config") == {
            "default_tenant": "acme",
            "lane_by_profile": True,
            "include_archived_by_default": False,
            "render_markdown": True,
        }
        before = await ask(api, "GET", "orchestration")
        assert (before["auto_decompose"], before["orchestrator_profile"]) == (True, "")
        assert before["resolved_orchestrator_profile"] == before["active_profile"] == "default"
        change = {"default_assignee": "default", "auto_decompose": False}
        after = await ask(api, "PUT", "orchestration", change)
        assert after == {
            **before,
            "default_assignee": "default",
            "resolved_default_assignee": "default",
            "auto_decompose": False,
        }
        kept = load_config(home, {}).config
        assert (kept.kanban.default_assignee, kept.kanban.auto_decompose) == ("default", False)
        assert home.config.read_text().startswith("# mine\n")
        cleared = await ask(api, "PUT", "orchestration", {"default_assignee": ""})
        assert (cleared["default_assignee"], cleared["auto_decompose"]) == ("", False)
        for refused in (b'{"default_assignee": "nobody"}', b'{"auto_promote_children": false}'):
            assert await status(api, "PUT", "orchestration", refused) == 400


async def test_profile_is_described_by_a_person_or_by_the_model(tmp_path: Path) -> None:
    script = Script(rules=[Rule("Skills: none", [Reply("Takes\ngeneral tasks.")] * 2)])
    async with api_harness(tmp_path, script) as api:
        file = api.app.home.path / "profile.yaml"
        file.write_text("display_name: Ada\n")
        made = await ask(api, "POST", "profiles/default/describe-auto", {"overwrite": False})
        assert made["ok"] is True
        assert made["description"] == "Takes general tasks."
        shown = {"name": "default", "is_default": True, "description_auto": True}
        profiles = await ask(api, "GET", "profiles")
        assert profiles == {"profiles": [{**shown, "description": "Takes general tasks."}]}
        await ask(api, "PATCH", "profiles/default", {"description": " writes poems "})
        (one,) = (await ask(api, "GET", "profiles"))["profiles"]
        assert (one["description"], one["description_auto"]) == ("writes poems", False)
        kept = await ask(api, "POST", "profiles/default/describe-auto", {"overwrite": False})
        assert (kept["ok"], kept["description"]) == (False, "writes poems")
        forced = await ask(api, "POST", "profiles/default/describe-auto", {"overwrite": True})
        assert forced["description"] == "Takes general tasks."
        assert "display_name: Ada" in file.read_text()
        assert await status(api, "PATCH", "profiles/nobody", b'{"description": "x"}') == 404
