"""Markdown as HTML: nothing but the allowed elements, and the same while it is being written."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from hermes.web.html import h, join
from hermes.web.markdown import MAX_BRACKETS, MAX_MARKDOWN, LiveMarkdown, render
from support.xss import attacks

ALLOWED = {
    "p", "br", "hr", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "strong", "em", "s",
    "code", "pre", "span", "a", "div", "table", "thead", "tbody", "tr", "th", "td", "figure",
    "figcaption", "button",
}  # fmt: skip
ATTRIBUTES = {
    "a": {"href", "target", "rel", "title"},
    "ol": {"start"},
    "div": {"class", "tabindex", "role", "aria-label"},
    "th": {"class"},
    "td": {"class"},
    "span": {"class"},
    "figure": {"class"},
    "pre": {"tabindex", "role", "aria-label"},
    "button": {"type", "class", "data-action", "data-host", "data-url", "data-label"},
}


class Checker(HTMLParser):
    """Fails for any element, attribute or address that is not on the list."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        assert {name for name, _ in attrs} <= ATTRIBUTES.get(tag, set())
        given_values = dict(attrs)
        if href := given_values.get("href"):
            assert href.lower().startswith(("https://", "http://", "mailto:"))
        if action := given_values.get("data-action"):
            assert action in {"copy", "load-image"}


def test_markdown_is_rendered_with_plain_elements() -> None:
    assert str(render("# A *b*\n\n1. x\n2. `y`\n\n| a |\n|--:|\n| 1 |")) == snapshot(
        "<h3>A <em>b</em></h3><ol><li>x</li><li><code>y</code></li></ol>"
        '<div class="wide" tabindex="0" role="region" aria-label="Table"><table><thead><tr>'
        '<th class="right">a</th></tr></thead><tbody><tr><td class="right">1</td></tr></tbody>'
        "</table></div>"
    )


def test_attacks_leave_only_allowed_elements() -> None:
    for one in attacks():
        checker = Checker()
        checker.feed(render(one))
        checker.close()


@given(st.text(alphabet="ab*_`#>-|[]()!<&\"'\n :/1.", max_size=80))
def test_any_text_leaves_only_allowed_elements(source: str) -> None:
    checker = Checker()
    checker.feed(render(source))
    checker.close()


def test_remote_image_is_a_button_until_the_reader_agrees() -> None:
    shown = render("![chart](https://example.org/a.png)")
    assert "<img" not in shown
    assert 'data-host="example.org"' in shown


@given(
    st.lists(st.sampled_from(["para ", "\n\n", "- item\n", "# head\n", "```py\n", "x = 1\n",
                              "> quote\n", "| a | b |\n|---|---|\n", "**b** "]), max_size=12),
    st.integers(1, 5),
)  # fmt: skip
def test_growing_text_ends_as_the_whole_text(pieces: list[str], every: int) -> None:
    live, whole = LiveMarkdown(), "".join(pieces)
    shown: list[str] = []
    for start in range(0, len(whole), every):
        live.add(whole[start : start + every])
        patch = live.patch()
        shown[patch.start :] = patch.blocks[patch.start :]
    # Code is highlighted when its block is complete, so only the texts are compared.
    assert _text("".join(shown)) == _text(render(whole))


async def test_large_block_is_parsed_in_a_thread_and_growing_text_is_not_lost() -> None:
    live = LiveMarkdown()
    live.add("first\n\n" + "- an item\n" * 400)
    assert live.is_large
    patch = await live.patch_in_thread()
    assert patch is not None
    assert patch.start == 0
    assert len(patch.blocks) == 2
    live.add("\nlast")
    assert live.blocks() == patch.blocks, "a page that opens now gets what the others have"
    assert live.draft() == "".join(patch.blocks)
    more = await live.patch_in_thread()
    assert more is not None
    assert more.start == 1
    assert _text("".join(more.blocks)) == _text(render(live.text))


def test_only_a_line_feed_ends_a_line_of_growing_text():
    live = LiveMarkdown()
    for piece in ("a\u2028b\fc\n\nd", "\n\ne\n\n", "f"):
        live.add(piece)
        live.patch()
    assert _text("".join(live.blocks())) == _text(render(live.text))


def _text(html: str) -> str:
    found: list[str] = []
    parser = HTMLParser()
    parser.handle_data = found.append  # type: ignore[method-assign]
    parser.feed(html)
    parser.close()
    return "".join("".join(found).split())


def test_text_and_attributes_are_escaped() -> None:
    shown = h("a", "<b>", title='"<x>', hidden=True, lang=None)
    assert str(shown) == '<a title="&quot;&lt;x&gt;" hidden>&lt;b&gt;</a>'
    assert str(join(["<", h("br"), ["&", None]])) == "&lt;<br>&amp;"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/",
        "http://127.1/",
        "http://2130706433:81/",
        "http://[::1]:8000/",
        "http://localhost.:8000/",
        "https://x.localhost/",
        "http://%3127.0.0.1/",
        "http://0/",
    ],
)
def test_links_to_this_machine_are_text(url: str):
    assert "<a" not in render(f"[here]({url})")


def test_links_to_the_web_can_be_followed():
    assert "<a" in render("[here](https://example.org:8443/a?b=%20c)")


def test_only_the_beginning_of_a_long_text_is_rendered():
    whole = "word " * (MAX_MARKDOWN // 5) + "**end** <b>"
    live = LiveMarkdown()
    live.add(whole)
    for shown in (render(whole), join(live.blocks())):
        assert shown.endswith('<div class="text">**end** &lt;b&gt;</div>')


def test_table_with_too_many_cells_is_text():
    wide = "|" + "a|" * 200 + "\n|" + "-|" * 200 + "\n"
    assert "<table" in render(wide + "|\n" * 10)
    assert "<table" not in render(wide + "|\n" * 1000)


def test_text_with_too_many_brackets_has_no_links():
    link = "[a](https://example.org)\n\n"
    assert "<a" in render(link + "[" * 100)
    assert "<a" not in render(link + "[" * MAX_BRACKETS)
