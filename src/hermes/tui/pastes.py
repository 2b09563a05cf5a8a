"""Long pasted texts, shown as a short mark while they are edited around."""


class Pastes:
    def __init__(self, lines: int, characters: int) -> None:
        """What is longer than that is shortened; zero sets no limit."""
        self._lines = lines
        self._characters = characters
        self._texts: dict[str, str] = {}

    def shortened(self, text: str) -> str:
        """The text itself, or a mark that stands for it when it is long."""
        lines = text.rstrip("\n").count("\n") + 1
        many = self._lines and lines > self._lines
        long = self._characters and len(text) > self._characters
        if not many and not long:
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        mark = f"[pasted text {len(self._texts) + 1}: {size}]"
        self._texts[mark] = text
        return mark

    def whole(self, text: str) -> str:
        """With every mark that is still there replaced by what it stands for.

        One pass: what was pasted may itself look like a mark, and stays as it is.
        """
        if not self._texts:
            return text
        whole: list[str] = []
        rest = text
        while found := min(
            ((place, mark) for mark in self._texts if (place := rest.find(mark)) >= 0),
            default=None,
        ):
            place, mark = found
            whole += [rest[:place], self._texts[mark]]
            rest = rest[place + len(mark) :]
        return "".join([*whole, rest])

    def forget(self) -> None:
        self._texts.clear()
