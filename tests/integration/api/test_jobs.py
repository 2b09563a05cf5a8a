"""The routes under `/api/jobs`, with the public system's answers."""

from pathlib import Path

import msgspec

from support.api_server import api_harness


async def test_jobs_are_created_changed_and_removed(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as api:
        body = {"name": "Mail", "schedule": "weekdays at 9", "prompt": "Read my mail", "repeat": 3}
        made = await api.ask("POST", "/api/jobs", msgspec.json.encode(body))
        job = made.json["job"]
        assert (made.status, job["deliver"], job["repeat"]["times"]) == (200, "local", 3)
        path = f"/api/jobs/{job['id']}"
        assert (await api.ask("GET", path)).json["job"]["name"] == "Mail"
        changed = await api.ask("PATCH", path, b'{"schedule": "every 2h", "skills": ["news"]}')
        assert changed.json["job"]["schedule"]["kind"] == "interval"
        assert (await api.ask("POST", f"{path}/pause")).json["job"]["state"] == "paused"
        assert (await api.ask("GET", "/api/jobs")).json == {"jobs": []}
        everything = await api.ask("GET", "/api/jobs?include_disabled=true")
        assert len(everything.json["jobs"]) == 1
        assert (await api.ask("POST", f"{path}/resume")).json["job"]["enabled"] is True
        assert (await api.ask("POST", f"{path}/run")).status == 200
        assert (await api.ask("DELETE", path)).json == {"ok": True}
        assert (await api.ask("GET", path)).status == 404
        able = await api.ask("GET", "/v1/capabilities")
        assert able.json["features"]["jobs_api"] is True


async def test_wrong_requests_are_answered_with_a_reason(tmp_path: Path) -> None:
    async with api_harness(tmp_path) as api:
        wrong = [
            {"name": "x", "schedule": "whenever", "prompt": "y"},
            {"schedule": "30m", "prompt": "y"},
            {"name": "x", "schedule": "30m"},
            {"name": "x", "schedule": "30m", "prompt": "y", "repeat": 0},
            {"name": "x" * 201, "schedule": "30m", "prompt": "y"},
        ]
        for body in wrong:
            answer = await api.ask("POST", "/api/jobs", msgspec.json.encode(body))
            assert answer.status == 400
            assert isinstance(answer.json["error"], str)
        assert (await api.ask("GET", "/api/jobs/nonsense")).status == 400
        assert (await api.ask("POST", "/api/jobs/0123456789ab/run")).json["error"]
