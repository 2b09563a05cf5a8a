"""What can be seen of a question without understanding it: what it names, and what it is after.

English words decide, and where there are none the small model decides by itself.
"""

import re

LONGEST = 300
_FILES = (
    r"(?<![\w/.@:~-])\w[\w.-]*\.(?:txt|md|csv|tsv|json|ya?ml|toml|ini|cfg|xml|html?|log|py|sh)\b"
)
_QUOTED = r"(?<!\w)(?:'([^'\n]{1,80})'|\"([^\"\n]{1,80})\"|“([^”\n]{1,80})”|`([^`\n]{1,80})`)(?!\w)"
_NAMED = re.compile(f"(?P<file>{_FILES})|{_QUOTED}")
_ADDRESS = re.compile(r"https?://[^\s<>\"'`“”]+", re.IGNORECASE)
_AFTER = ".,;:!?)]}"
"""What may follow an address and is not of it."""
_KNOW = re.compile(
    r"\b(?:who|whom|whose|which|what|when|where|why|how)\b.*\?"
    r"|\b(?:tell|show|list|count|explain|describe|compare|summari[sz]e|summary)\b",
    re.IGNORECASE | re.DOTALL,
)
_DO = re.compile(
    r"\b(?:add|append|change|copy|correct|create|delete|edit|fix|insert|make|move|put|remove|rename"
    r"|replace|save|store|update|write)\b",
    re.IGNORECASE,
)
_KEEP = re.compile(
    r"\b(?:please|always|also|and|must|should)\s+remember\b|^\W*remember\b(?!\s+(?:when|how)\b)"
    r"|\b(?:can|could|will|would) you (?:please )?remember (?:that|this|my|it)\b"
    r"|\b(?:don['\u2019]?t|do not|never) forget\b|\bkeep in mind\b|\bmemori[sz]e\b"
    r"|\bfrom now on\b|\bnext time\b",
    re.IGNORECASE,
)


def named_in(asked: str) -> list[str]:
    """Files and words in quotes: whoever does what was asked comes by every one of them."""
    found = (
        (one["file"] or next(filter(None, one.groups()), "")) for one in _NAMED.finditer(asked)
    )
    return list(dict.fromkeys(filter(None, found)))


def addresses_in(asked: str) -> list[str]:
    """Pages of the web."""
    return list(dict.fromkeys(one.rstrip(_AFTER) for one in _ADDRESS.findall(asked)))


def wants_to_know(asked: str) -> bool:
    return _KNOW.search(asked) is not None


def wants_it_done(asked: str) -> bool:
    return _DO.search(asked) is not None


def wants_it_kept(asked: str) -> bool:
    """Whether something is to be known in later talks, too."""
    return _KEEP.search(asked) is not None
