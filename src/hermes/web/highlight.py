"""Highlight code and diffs with a few classes of our own."""

from hermes.web.html import Child, Html, h, join

MAX_SOURCE = 3_000
MAX_LINE = 200
"""Longer code, or code with longer lines, is shown plain: lexers can be slow for long lines."""
LEXERS = {
    "bash": "bash", "css": "css", "go": "go", "javascript": "javascript", "js": "javascript",
    "json": "json", "py": "python", "python": "python", "python3": "python", "sh": "bash",
    "shell": "bash", "sql": "sql", "toml": "toml", "ts": "javascript", "typescript": "javascript",
    "yaml": "yaml", "yml": "yaml",
}  # fmt: skip
"""The languages that are highlighted. Anyone who can write to the agent chooses the language and
the code, so that only lexers whose time grows with the size are used."""
_DIFFS = frozenset({"diff", "patch"})
_CLASSES = (
    ("Comment", "c"),
    ("Keyword", "k"),
    ("Literal.String", "s"),
    ("Literal.Number", "m"),
    ("Name.Function", "f"),
    ("Name.Class", "f"),
    ("Name.Tag", "k"),
    ("Name.Attribute", "f"),
    ("Generic.Deleted", "del"),
    ("Generic.Inserted", "ins"),
    ("Generic.Subheading", "c"),
)


def highlight(source: str, language: str) -> Child:
    """Return the code as spans; plain if the language is unknown."""
    name = language.lower()
    if name in _DIFFS:
        return diff(source)
    if name not in LEXERS or len(source) > MAX_SOURCE:
        return source
    if any(len(line) > MAX_LINE for line in source.split("\n")):
        return source
    from pygments.lexers import find_lexer_class_by_name  # noqa: PLC0415 - only for code

    lexer = find_lexer_class_by_name(LEXERS[name])(stripnl=False, ensurenl=False)
    return [_span(str(kind), value) for kind, value in lexer.get_tokens(source)]


def diff(source: str) -> Html:
    """A unified diff with its added and removed lines marked."""
    lines: list[Child] = []
    for line in source.splitlines(keepends=True):
        kind = {"+": "ins", "-": "del", "@": "c"}.get(line[:1])
        lines.append(h("span", line, class_=kind) if kind else line)
    return join(lines)


def looks_like_diff(source: str) -> bool:
    return source.startswith(("--- ", "diff --git ", "@@ ")) or "\n@@ -" in source[:2000]


def _span(kind: str, value: str) -> Child:
    name = kind.removeprefix("Token.")
    found = next((short for prefix, short in _CLASSES if name.startswith(prefix)), None)
    return value if found is None else h("span", value, class_=found)
