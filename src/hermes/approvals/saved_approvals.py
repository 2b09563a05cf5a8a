"""Saved approvals and allow rules, which match whole simple commands, never text prefixes."""

import fnmatch
import re
from collections.abc import Iterator, Sequence

from hermes.ports.approval_records import SavedApproval
from hermes.ports.approvals import ApprovalRequest, Isolation

ANY_WORDS = "**"
"""As the last word of a rule: any number of further words."""

NEVER_SAVED = frozenset({"process", "write_file", "patch"})
"""Tools whose requests are only about one input or one file content."""
_TOKEN = re.compile(r"[A-Za-z0-9_./:@%+,=-]+|'[^'\x00-\x1f]*'|\"[^\"$`\\!\x00-\x1f]*\"")
_DISCARDED_OUTPUT = re.compile(r"(?<=\s)(?:[12]?>>?|&>) ?/dev/null(?=\s)|(?<=\s)2>&1(?=\s)")
_COMMAND = re.compile(
    r"[ \t]*(?P<words>(?:'[^'\n]*'|\"[^\"\n]*\"|(?:[12]?>>?|&>) ?/dev/null|2>&1|[^'\"|&;\n<>])+)"
    r"(?:&&|\|\||;(?!;)|\||\n+|$)\s*"
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_KEYWORDS = frozenset({
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "in",
    "function", "select", "time", "coproc", "eval", "exec", "source", ".", "command", "builtin",
    "alias",
})  # fmt: skip


def simple_argv(text: str) -> tuple[str, ...] | None:
    """Split a command made of plain words only; None for everything else.

    Operators, substitutions, redirections, expansions, patterns, comments, escapes, line breaks
    and assignments are rejected, so the result is exactly what would run.
    """
    words = list(_tokens(text.strip(" \t")))
    if not words or None in words:
        return None
    argv = tuple(word for word in words if word is not None)
    first = argv[0]
    if not first or _ASSIGNMENT.match(first) or first in _KEYWORDS or first.startswith("-"):
        return None
    return argv


def _tokens(text: str) -> Iterator[str | None]:
    at = 0
    while at < len(text):
        word: list[str] = []
        while found := _TOKEN.match(text, at):
            piece = found.group()
            word.append(piece[1:-1] if piece[0] in "'\"" else piece)
            at = found.end()
        if not word or (at < len(text) and text[at] not in " \t"):
            yield None
            return
        yield "".join(word)
        while at < len(text) and text[at] in " \t":
            at += 1


def simple_commands(text: str) -> list[tuple[str, ...]] | None:
    """Split a chain of simple commands; None for everything else.

    Commands may be joined by `|`, `&&`, `||`, `;` or newlines, and may discard output.
    """
    found: list[tuple[str, ...]] = []
    at = 0
    while at < len(text):
        piece = _COMMAND.match(text, at)
        if piece is None:
            return None
        argv = simple_argv(_DISCARDED_OUTPUT.sub(" ", piece["words"] + " "))
        if argv is None:
            return None
        found.append(argv)
        at = piece.end()
    return found or None


def covers(saved: SavedApproval, request: ApprovalRequest) -> bool:
    """Whether this saved approval is about exactly this request."""
    saved_key = (saved.tool, saved.reaching, saved.folder, saved.seal, saved.action)
    action = _saved_action(request)
    requested = (request.tool, request.reaching, request.folder, request.seal, action)
    if saved_key != requested or not can_be_saved(request):
        return False
    return saved.argv == simple_argv(request.action) if request.shell else bool(saved.action)


def _saved_action(request: ApprovalRequest) -> str:
    return request.detail if request.shell else request.kind or request.action


def can_be_saved(request: ApprovalRequest) -> bool:
    """Whether there is something exact to save."""
    if request.kind:
        return True
    if request.tool in NEVER_SAVED or request.target or (request.detail and not request.seal):
        return False
    if not request.shell:
        return True
    return simple_argv(request.action) is not None and not unsealed_runner(request)


def leaves_sandbox(request: ApprovalRequest) -> bool:
    """Whether it reaches outside the sandbox."""
    return request.reaching in {Isolation.NETWORK, Isolation.BEYOND}


def unsealed_runner(request: ApprovalRequest) -> str:
    """Return the program that makes a simple command depend on files that cannot be sealed.

    Empty if there is none, and for commands that stay inside the sandbox.
    """
    argv = simple_argv(request.action) if request.shell and leaves_sandbox(request) else None
    if argv is None:
        return ""
    from hermes.approvals.seals import UNSEALED_PREFIX, unsealable_program  # noqa: PLC0415 - few ever need it

    if request.seal.startswith(UNSEALED_PREFIX):
        return request.seal.split()[1]
    return unsealable_program(argv)


def make_saved_approval(
    request: ApprovalRequest, identity: str, *, session: str, by: str, answered_by: str = ""
) -> SavedApproval:
    """Save the approval of a request for which `can_be_saved` holds."""
    argv = simple_argv(request.action) if request.shell else ()
    return SavedApproval(
        id=identity,
        tool=request.tool,
        reaching=request.reaching,
        argv=argv or (),
        action=_saved_action(request),
        folder=request.folder,
        seal=request.seal,
        session=session,
        asked_by=by,
        answered_by=answered_by,
    )


class AllowRule:
    """One allow rule of the settings; each of its words may be a glob for one word."""

    def __init__(self, line: str) -> None:
        self._words = tuple(line.split())

    def allows(self, action: str) -> bool:
        argv = simple_argv(action)
        if argv is None or not self._words or any(sign in self._words[0] for sign in "*?["):
            return False
        return _matches(self._words, argv)


def _matches(words: Sequence[str], argv: Sequence[str]) -> bool:
    if words[-1] == ANY_WORDS:
        words, argv = words[:-1], argv[: len(words) - 1]
    return len(words) == len(argv) and all(
        fnmatch.fnmatchcase(one, word) for one, word in zip(argv, words, strict=True)
    )
