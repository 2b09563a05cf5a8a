"""Rules that allow: they know the words of a simple command, never the beginning of a text."""

import fnmatch
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.schema.scope import OWNER

ANY_WORDS = "**"
"""As the last word of a rule: any number of further words."""

NEVER_SAVED = frozenset({"process", "write_file", "patch"})
"""Tools whose wish is about one moment: what is typed, what is written."""
_TOKEN = re.compile(r"[A-Za-z0-9_./:@%+,=-]+|'[^'\x00-\x1f]*'|\"[^\"$`\\!\x00-\x1f]*\"")
_DISCARDED_OUTPUT = re.compile(r"(?<=\s)(?:[12]?>>?|&>) ?/dev/null(?=\s)|(?<=\s)2>&1(?=\s)")
_COMMAND = re.compile(
    r"[ \t]*(?P<words>(?:'[^'\n]*'|\"[^\"\n]*\"|(?:[12]?>>?|&>) ?/dev/null|2>&1|[^'\"|&;\n<>])+)"
    r"(?:&&|\|\||;(?!;)|\||\n+|$)\s*"
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_KEYWORDS = frozenset(
    {
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "in",
        "function",
        "select",
        "time",
        "coproc",
        "eval",
        "exec",
        "source",
        ".",
        "command",
        "builtin",
        "alias",
    }
)


def simple_argv(text: str) -> tuple[str, ...] | None:
    """The words of a command that is nothing but words; None for everything else.

    No operator, substitution, redirection, expansion, pattern, comment, escape, line break or
    assignment is let through, so what stands here is exactly what would be run.
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
    """The words of each command of a chain of simple ones; None for everything else.

    Commands are joined by `|`, `&&`, `||`, `;` or line ends, and may throw output away.
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


class Grant(Struct, frozen=True, kw_only=True):
    """What somebody allowed from then on. An empty `session` means every session.

    Of a shell command `argv` are its words; of anything else `action` is the whole of it, or
    what kind of action it is; with a command it is what else was shown. It counts in its `folder`
    only, and while the `seal` is the same.
    `by` is who wished it, `answered_by` who allowed it.
    """

    id: str
    tool: str
    reaching: Isolation
    argv: tuple[str, ...] = ()
    action: str = ""
    folder: str = ""
    seal: str = ""
    session: str = ""
    by: str = ""
    answered_by: str = ""

    @property
    def is_from_owner(self) -> bool:
        """Whether the owner gave it; of an older one only who wished it is known."""
        return (self.answered_by or self.by) == OWNER

    @property
    def shown(self) -> str:
        return "\n".join(filter(None, [" ".join(self.argv), self.action]))

    def covers(self, wish: ApprovalRequest) -> bool:
        if (self.tool, self.reaching, self.folder) != (wish.tool, wish.reaching, wish.folder):
            return False
        if self.seal != wish.seal or self.action != _granted_action(wish):
            return False
        if not can_be_saved(wish):
            return False
        return self.argv == simple_argv(wish.action) if wish.shell else bool(self.action)


def _granted_action(wish: ApprovalRequest) -> str:
    return wish.detail if wish.shell else wish.kind or wish.action


def can_be_saved(wish: ApprovalRequest) -> bool:
    """Whether there is something exact to remember."""
    if wish.kind:
        return True
    if wish.tool in NEVER_SAVED or wish.target or (wish.detail and not wish.seal):
        return False
    if not wish.shell:
        return True
    return simple_argv(wish.action) is not None and not unsealed_runner(wish)


def leaves_sandbox(wish: ApprovalRequest) -> bool:
    """Whether it goes where the wall does not hold it."""
    return wish.reaching in {Isolation.NETWORK, Isolation.BEYOND}


def unsealed_runner(wish: ApprovalRequest) -> str:
    """The program that makes a simple command mean what files say which nobody can keep watch on.

    Empty for none, and where no wall is passed.
    """
    argv = simple_argv(wish.action) if wish.shell and leaves_sandbox(wish) else None
    if argv is None:
        return ""
    from hermes.approvals.seals import UNSEALED_PREFIX, unsealable_program  # noqa: PLC0415 - few ever need it

    if wish.seal.startswith(UNSEALED_PREFIX):
        return wish.seal.split()[1]
    return unsealable_program(argv)


def make_grant(
    wish: ApprovalRequest, identity: str, *, session: str, by: str, answered_by: str = ""
) -> Grant:
    """Only for a wish that can last."""
    argv = simple_argv(wish.action) if wish.shell else ()
    return Grant(
        id=identity,
        tool=wish.tool,
        reaching=wish.reaching,
        argv=argv or (),
        action=_granted_action(wish),
        folder=wish.folder,
        seal=wish.seal,
        session=session,
        by=by,
        answered_by=answered_by,
    )


class AllowRule:
    """One line of the settings: its words, each perhaps a pattern for one word."""

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
