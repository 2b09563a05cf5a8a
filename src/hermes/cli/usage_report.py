"""The file that `--usage-file` asks for: what the run used and cost, under its known names."""

from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from hermes.app.build import App
from hermes.kit.files import write_atomic
from hermes.schema.errors import UsageError
from hermes.schema.events import Outcome, RunEnded


class UsageReport(Struct, kw_only=True):
    session_id: str
    model: str
    provider: str
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    api_calls: int = 0
    estimated_cost_usd: float | None = None
    cost_status: str = "unknown"
    cost_source: str = "catalog"
    completed: bool = False
    failed: bool = False
    service_tier: str = ""


async def write_usage(path: Path, app: App, ended: RunEnded | None) -> None:
    session = app.conversation.session
    report = UsageReport(session_id=session.id, model=session.model, provider=session.provider)
    if ended is not None:
        usage = ended.usage
        report.input_tokens, report.output_tokens = usage.input, usage.output
        report.cache_read_tokens, report.cache_write_tokens = usage.cache_read, usage.cache_write
        report.reasoning_tokens = usage.reasoning
        report.total_tokens = usage.input + usage.output
        report.api_calls = ended.steps
        report.completed = ended.outcome is Outcome.DONE
        report.failed = ended.outcome is Outcome.FAILED
        report.estimated_cost_usd = app.price(session.model, session.provider, usage)
    if report.estimated_cost_usd is not None:
        report.cost_status = "estimated"
    data = msgspec.json.encode(report) + b"\n"
    try:
        await anyio.to_thread.run_sync(write_atomic, path, data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
