"""Code is highlighted only where that cannot become slow."""

from time import process_time

import pytest
from pygments.lexers import find_lexer_class_by_name

from hermes.web.highlight import LEXERS, MAX_LINE, MAX_SOURCE, highlight

HOSTILE = ("s{", "'", "(", "${", "a.", "a:", "&", "*", "\\")


@pytest.mark.parametrize(
    ("source", "language"),
    [
        ("x = 1\n" * MAX_SOURCE, "python"),
        ("x" * (MAX_LINE + 1), "python"),
        ("s{" * 50, "perl"),
        ("x = 1", "no-such-language"),
    ],
)
def test_long_code_and_other_languages_are_plain(source: str, language: str):
    assert highlight(source, language) == source


def test_known_languages_and_diffs_are_marked():
    assert '<span class="k">' in "".join(map(str, highlight("def f(): pass", "Py") or ()))
    assert '<span class="ins">' in str(highlight("+a\n-b\n", "diff"))


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(set(LEXERS.values())))
def test_time_grows_with_the_size(name: str):
    """Four times the lines take about four times as long; squared, it would be sixteen times."""
    lexer = find_lexer_class_by_name(name)(stripnl=False, ensurenl=False)

    def cost(lines: int) -> float:
        sources = [((unit * MAX_LINE)[:MAX_LINE] + "\n") * lines for unit in HOSTILE]
        tries: list[float] = []
        for _ in range(3):
            before = process_time()
            for source in sources:
                for _token in lexer.get_tokens(source):
                    pass
            tries.append(process_time() - before)
        return min(tries)

    assert cost(8) < 10 * cost(2)
