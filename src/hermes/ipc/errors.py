"""Errors on their way through a socket: told as a code and words, raised again as themselves."""

from hermes.ipc.client import ErrorInfo
from hermes.schema.errors import HermesError


def error_info(error: HermesError) -> ErrorInfo:
    return ErrorInfo(error.code, _clean(str(error)), _clean(error.hint))


def error_from_info(trouble: ErrorInfo) -> HermesError:
    """An error of the class that has this code; where several share it, the most general."""
    kind = _errors_by_code(HermesError).get(trouble.code, HermesError)
    return kind(trouble.message, hint=trouble.hint)


def _errors_by_code(root: type[HermesError]) -> dict[str, type[HermesError]]:
    found: dict[str, type[HermesError]] = {}
    for kind in root.__subclasses__():
        found |= _errors_by_code(kind)
    return found | {root.code: root}


def _clean(text: str) -> str:
    """A name of a file may hold bytes that are no text, which JSON cannot carry."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
