import subprocess
import sys

WRITER = """
import logging, sys
from pathlib import Path
from hermes.kit.redact import Redactor
from hermes.logs import Logs, LogSettings
Logs(Path(sys.argv[1]), LogSettings(max_bytes=4000, keep=60), Redactor(["canary-secret"]))
for number in range(300):
    logging.getLogger("hermes.test").info("%s-%d canary-secret", sys.argv[2], number)
"""


def test_several_processes_share_the_logs_and_lose_no_record(tmp_path):
    names = ["a", "b", "c"]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name]) for name in names
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    logs = sorted(tmp_path.glob("agent.log*"))
    assert len(logs) > 5
    lines = [line for log in logs for line in log.read_text().splitlines()]
    assert all(line.endswith(" [redacted]") for line in lines)
    logged = {line.split(": ")[1].split()[0] for line in lines}
    assert logged == {f"{name}-{number}" for name in names for number in range(300)}
    one_each_too_much = len(names) * max(map(len, lines))
    assert all(log.stat().st_size <= 4000 + one_each_too_much for log in logs)
