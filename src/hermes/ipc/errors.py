"""Encode errors for the socket, and restore them on the other side."""

from hermes.ipc.client import ErrorInfo
from hermes.schema.errors import HermesError


def error_info(error: HermesError) -> ErrorInfo:
    return ErrorInfo(error.code, _clean(str(error)), _clean(error.hint))


def error_from_info(info: ErrorInfo) -> HermesError:
    """Return an error of the class with this code; of several, the most general one."""
    kind = _errors_by_code(HermesError).get(info.code, HermesError)
    return kind(info.message, hint=info.hint)


def _errors_by_code(root: type[HermesError]) -> dict[str, type[HermesError]]:
    found: dict[str, type[HermesError]] = {}
    for kind in root.__subclasses__():
        found |= _errors_by_code(kind)
    return found | {root.code: root}


def _clean(text: str) -> str:
    """Replace bytes in file names that are not text, which JSON cannot carry."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
