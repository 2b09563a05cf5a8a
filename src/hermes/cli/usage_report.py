"""The file that `--usage-file` asks for: what the run used and cost."""

from pathlib import Path

import msgspec

from hermes.kit.files import write_atomic
from hermes.local.partner import UsageReport
from hermes.schema.errors import UsageError


def write_usage(path: Path, report: UsageReport) -> None:
    try:
        write_atomic(path, msgspec.json.encode(report) + b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
