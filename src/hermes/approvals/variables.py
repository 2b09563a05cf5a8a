"""What a shell knows by name while it goes through a text: variables, lists, what it was given."""

import posixpath
import re
from collections.abc import Mapping, Sequence

from hermes.approvals.outputs import Known, output_of
from hermes.approvals.values import UNKNOWN, parameter

MOST = 1000
MOST_SET = 20_000
"""More names than the one, set more often than the other, are not kept."""
MOST_LETTERS = 200_000
MOST_EXPANDED = 1_000_000
"""So long may one value be, and all together that are put into words."""
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*):?=")
_VALUED = re.compile(r"-[a-zA-Z]*[dinNptu]$")


class Variables:
    """Those who asked for all that is known keep what they saw: it is copied when it changes."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = dict(known)
        self._lent = False
        self._left = MOST_SET
        self._room = MOST_EXPANDED
        self.full = False

    def lend(self) -> Mapping[str, str]:
        self._lent = True
        return self._known

    def back_to(self, known: Mapping[str, str]) -> None:
        """What was known before a part that runs apart."""
        if known is not self._known:
            self._known = dict(known)
            self._lent = False

    def get(self, name: str, default: str = "") -> str:
        return self._known.get(name, default)

    def set(self, name: str, value: str) -> None:
        if self._lent:
            self._known, self._lent = dict(self._known), False
        self._left -= 1
        if len(value) > MOST_LETTERS:
            value, self.full = UNKNOWN, True
        if self._left > 0 and (len(self._known) < MOST or name in self._known):
            self._known[name] = value
        else:
            self.full = True

    def set_list(self, name: str, words: Sequence[str], *, more: bool = False) -> None:
        if self.full:
            return
        before = self._items(name) if more else []
        for number, word in enumerate(words, len(before)):
            self.set(f"{name}[{number}]", word)
        if not self.full:
            self.set(name, " ".join([*before, *words]))

    def set_item(self, name: str, key: str, value: str) -> None:
        self.set(f"{name}[{key}]", value)
        if self.full:
            return
        self.set(name, " ".join(self._items(name)))

    def _items(self, name: str) -> list[str]:
        start = f"{name}["
        items = [value for key, value in self._known.items() if key.startswith(start)]
        return items or [one for one in [self._known.get(name, "")] if one]

    def give(self, words: Sequence[str]) -> None:
        """`$1` and those behind it."""
        for name in [one for one in self._known if one.isdecimal() and one != "0"]:
            self.set(name, "")
        for number, word in enumerate(words, 1):
            self.set(str(number), word)
        self.set("@", " ".join(words))
        self.set("#", str(len(words)))

    def given(self) -> list[str]:
        count = self._known.get("#", "")
        return [self.get(str(one + 1)) for one in range(int(count) if count.isdecimal() else 0)]

    def expand(self, text: str) -> str:
        """The value of `$X` or `${X…}`; `${X:=…}` also sets it."""
        value = parameter(text, self._known)
        if (found := _DEFAULT.match(text)) and self.get(found[1], UNKNOWN) in {"", UNKNOWN}:
            self.set(found[1], value)
        self._room -= len(value)
        if self._room < 0:
            self.full = True
            return UNKNOWN
        return value

    def split(self, value: str) -> list[str]:
        """A value without quotes is as many words as the separators make of it."""
        separators = self.get("IFS", " ")
        if not separators.strip() or UNKNOWN in separators:
            return value.split()
        return [one for one in re.split(f"[{re.escape(separators)}]+", value) if one]

    def moved(self, folder: str) -> None:
        self.set("OLDPWD", self.get("PWD"))
        self.set("PWD", posixpath.normpath(folder))

    def tilde(self, text: str, home: str) -> str:
        """`~` and `~name` at the beginning of a word."""
        name, slash, rest = text[1:].partition("/")
        match name:
            case "":
                return home + slash + rest
            case "+":
                return self.get("PWD", UNKNOWN) + slash + rest
            case "-":
                return self.get("OLDPWD", UNKNOWN) + slash + rest
            case "root":
                return "/root" + slash + rest
            case _ if re.fullmatch(r"[a-z_][a-z0-9_-]*", name):
                return f"/home/{name}{slash}{rest}"
            case _:
                return text

    def learn(self, words: Sequence[str], fed: Known) -> None:
        """What commands put into variables."""
        match words:
            case ["set", "--", *rest]:
                self.give(rest)
            case ["set", first, *rest] if not first.startswith(("-", "+")):
                self.give([first, *rest])
            case ["shift", *rest]:
                count = int(rest[0]) if rest and rest[0].isdecimal() else 1
                self.give(self.given()[count:])
            case ["printf", "-v", name, *rest]:
                told = output_of(["printf", *rest], None)
                self.set(name, UNKNOWN if told is None else told)
            case ["read", *rest]:
                self._read(rest, fed)
            case ["mapfile" | "readarray", *rest] if rest:
                lines = [UNKNOWN] if fed is None else fed.splitlines()
                self.set_list(rest[-1], lines[:MOST])
            case _:
                pass

    def _read(self, args: Sequence[str], fed: Known) -> None:
        names: list[str] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            if _VALUED.match(word):
                rest[:1] = []
            elif not word.startswith("-"):
                names.append(word)
        if fed is None:
            for name in names or ["REPLY"]:
                self.set(name, UNKNOWN)
            return
        line = (fed.splitlines() or [""])[0]
        words = self.split(line)
        if any(re.fullmatch(r"-[a-zA-Z]*a", one) for one in args) and names:
            self.set_list(names[0], words)
            return
        *first, last = names or ["REPLY"]
        for number, name in enumerate(first):
            self.set(name, words[number] if number < len(words) else "")
        self.set(last, " ".join(words[len(first) :]))
