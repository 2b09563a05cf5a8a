"""Messages rendered for each dialect, cut to its limit, with fallbacks."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway.rendering.length import LENGTH_IN, count_graphemes, keep_end
from hermes.gateway.rendering.posts import compose_posts, render_text
from hermes.kit.graphemes import is_boundary
from hermes.ports.channel import (
    Attachment,
    ChannelCapabilities,
    Choice,
    Choices,
    Code,
    LengthUnit,
    Markup,
    MediaLimits,
)
from hermes.schema.messages import Media, Text
from support.cases import cases
from support.examples import at_most

SAMPLE = """# Title

Some **bold**, *slanted*, ~~gone~~ and `x < 1` with a [link](https://example.org/a_b).

- one
- two
  1. nested

> quoted

```py
if a < b:
    pass
```

| a | b |
|---|---|
| 1 | 2 |
"""


def caps(markup: Markup, most: int = 4000, unit: LengthUnit = LengthUnit.CHARACTERS):
    return ChannelCapabilities(max_text=most, markup=markup, unit=unit)


def rendered(text: str, markup: Markup) -> str:
    (post,) = render_text(text, caps(markup))
    return post.text


RENDERED = {
    Markup.PLAIN: (
        "Title\n\nSome bold, slanted, gone and x < 1 with a link (https://example.org/a_b).\n\n"
        "• one\n• two\n  1. nested\n\n> quoted\n\nif a < b:\n    pass\n\na  b\n-  -\n1  2"
    ),
    Markup.MARKDOWN: SAMPLE.strip(),
    Markup.DISCORD: (
        "**Title**\n\nSome **bold**, *slanted*, ~~gone~~ and `x < 1` with a "
        "[link](https://example.org/a_b).\n\n- one\n- two\n  1. nested\n\n> quoted\n\n"
        "```py\nif a < b:\n    pass\n```\n\n```\na  b\n-  -\n1  2\n```"
    ),
    Markup.TELEGRAM: (
        "<b>Title</b>\n\nSome <b>bold</b>, <i>slanted</i>, <s>gone</s> and <code>x &lt; 1</code> "
        'with a <a href="https://example.org/a_b">link</a>.\n\n• one\n• two\n  1. nested\n\n'
        '<blockquote>quoted</blockquote>\n\n<pre><code class="language-py">if a &lt; b:\n'
        "    pass</code></pre>\n\n<pre>a  b\n-  -\n1  2</pre>"
    ),
    Markup.SLACK: (
        "*Title*\n\nSome *bold*, _slanted_, ~gone~ and `x &lt; 1` with a "
        "<https://example.org/a_b|link>.\n\n• one\n• two\n  1. nested\n\n> quoted\n\n"
        "```\nif a &lt; b:\n    pass\n```\n\n```\na  b\n-  -\n1  2\n```"
    ),
    Markup.WHATSAPP: (
        "*Title*\n\nSome *bold*, _slanted_, ~gone~ and `x < 1` with a link "
        "(https://example.org/a_b).\n\n- one\n- two\n  1. nested\n\n> quoted\n\n"
        "```\nif a < b:\n    pass\n```\n\n```\na  b\n-  -\n1  2\n```"
    ),
    Markup.XMPP: (
        "*Title*\n\nSome *bold*, _slanted_, ~gone~ and `x < 1` with a link "
        "(https://example.org/a_b).\n\n• one\n• two\n  1. nested\n\n> quoted\n\n"
        "```\nif a < b:\n    pass\n```\n\n```\na  b\n-  -\n1  2\n```"
    ),
    Markup.IRC: (
        "\x02Title\x02\n\nSome \x02bold\x02, \x1dslanted\x1d, \x1egone\x1e and \x11x < 1\x11 with "
        "a link (https://example.org/a_b).\n\n* one\n* two\n  1. nested\n\n> quoted\n\n"
        "if a < b:\n    pass\n\na  b\n-  -\n1  2"
    ),
    Markup.HTML: (
        "<h1>Title</h1><p>Some <strong>bold</strong>, <em>slanted</em>, <del>gone</del> and "
        '<code>x &lt; 1</code> with a <a href="https://example.org/a_b">link</a>.</p>'
        "<ul><li>one</li></ul><ul><li>two</li></ul>"
        '<ul><ol start="1"><li>nested</li></ol></ul><blockquote><p>quoted</p></blockquote>'
        '<pre><code class="language-py">if a &lt; b:\n    pass</code></pre>'
        "<pre><code>a  b\n-  -\n1  2</code></pre>"
    ),
}


@cases("markup", Markup)
def test_sample_in_each_dialect(markup: Markup) -> None:
    assert rendered(SAMPLE, markup) == RENDERED[markup]


@cases("markup", Markup)
def test_every_post_has_the_same_text_without_markup(markup: Markup) -> None:
    posts = render_text(SAMPLE * 5, caps(markup, 150))
    assert len(posts) > 5
    assert all(post.plain.strip() for post in posts)
    assert "".join("".join(post.plain for post in posts).split()).count("Title") == 5


class Balanced(HTMLParser):
    """Fails for an element that is not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"br", "hr"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def html_text(html: str) -> str:
    parser = Balanced()
    parser.feed(html)
    parser.close()
    assert not parser.open
    return parser.text


words = st.sampled_from(
    ["word", "**bold words here**", "*x*", "`a < b`", "[label of link](https://e.org/x)", "& <b>",
     "שלום", "你好。", "\U0001f469\u200d\U0001f467", "e\u0301", "_a_", "x" * 50, "~~s t~~"]
)  # fmt: skip
paragraphs = st.lists(words, min_size=1, max_size=25).map(" ".join)
blocks = st.one_of(
    paragraphs,
    paragraphs,
    paragraphs.map("- {}".format),
    paragraphs.map("> {}".format),
    st.lists(st.sampled_from(["x = 1 < 2", "  y &= 3", "", "z" * 60]), min_size=1).map(
        lambda lines: "````py\n" + "\n".join(lines) + "\n````"
    ),
    st.sampled_from(["# Head **b**", "---", "| a | b |\n|---|---|\n| 1 | `2` |"]),
)
documents = st.lists(blocks, min_size=1, max_size=8).map("\n\n".join)
units = st.sampled_from(list(LengthUnit))
limits = st.integers(60, 300)


@given(documents, st.sampled_from(list(Markup)), units, limits)
@at_most(150)
def test_every_post_fits_in_the_unit_of_the_platform(
    text: str, markup: Markup, unit: LengthUnit, most: int
) -> None:
    length = LENGTH_IN[unit]
    for post in render_text(text, caps(markup, most, unit)):
        assert length(post.text) <= most
        assert length(post.plain) <= most or markup is Markup.MARKDOWN


@given(documents, st.sampled_from([Markup.TELEGRAM, Markup.HTML]), units, limits)
@at_most(150)
def test_html_is_balanced_in_every_post_and_no_text_is_lost(
    text: str, markup: Markup, unit: LengthUnit, most: int
) -> None:
    posts = render_text(text, caps(markup, most, unit))
    whole = "".join(html_text(post.text) for post in render_text(text, caps(markup, 10**6)))
    cut = "".join(html_text(post.text) for post in posts)
    assert only_letters(cut) == only_letters(whole)


@given(documents, st.sampled_from([Markup.SLACK, Markup.DISCORD, Markup.WHATSAPP]), limits)
def test_code_fences_are_closed_in_every_post(text: str, markup: Markup, most: int) -> None:
    for post in render_text(text, caps(markup, most)):
        assert len(re.findall(r"^(?:> )?(?:  )*```", post.text, re.MULTILINE)) % 2 == 0


@given(documents, limits)
def test_links_are_whole(text: str, most: int) -> None:
    for post in render_text(text, caps(Markup.SLACK, most)):
        assert post.text.count("<https://") == post.text.count("<https://e.org/x|")


def only_letters(text: str) -> str:
    return re.sub(r"[\s•]", "", text)


def test_graphemes_stay_whole_when_words_do_not_fit() -> None:
    family = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
    posts = render_text(family * 60, caps(Markup.TELEGRAM, 64, LengthUnit.UTF16))
    assert "".join(post.text for post in posts) == family * 60
    assert all(len(post.text) % len(family) == 0 for post in posts)


def test_text_that_looks_like_markup_is_escaped() -> None:
    assert rendered("a < b && c", Markup.TELEGRAM) == "a &lt; b &amp;&amp; c"
    assert rendered("<@U1> & co", Markup.SLACK) == "&lt;@U1&gt; &amp; co"
    assert rendered(r"2 \* 3 and snake_case https://e.org/a_b_", Markup.DISCORD) == (
        r"2 \* 3 and snake_case https://e.org/a_b_"
    )


def test_fence_in_code_does_not_end_the_block() -> None:
    text = "````\n```\nx\n```\n````"
    assert rendered(text, Markup.SLACK) == "```\n'''\nx\n'''\n```"
    assert rendered(text, Markup.DISCORD).count("```") == 2


def test_link_definitions_and_html_are_kept_as_text() -> None:
    assert rendered("[1]: https://e.org\n\n<p>x</p>", Markup.PLAIN) == (
        "[1]: https://e.org\n\n<p>x</p>"
    )


def test_blank_text_gives_no_post() -> None:
    for markup in Markup:
        assert render_text(" \n\n ", caps(markup)) == []


def test_code_block_is_a_block_of_its_own() -> None:
    (post,) = compose_posts([Text("Run?"), Code("a ``` b", "sh")], caps(Markup.MARKDOWN))
    assert post.text == "Run?\n\n````sh\na ``` b\n````"


PICK = Choices((Choice("The first one", "q:1"), Choice("Second", "q:2")))


def test_choices_are_buttons_below_the_last_post() -> None:
    able = ChannelCapabilities(60, buttons=3, button_label=8)
    first, last = compose_posts([Text("word " * 20), PICK], able)
    assert first.choices == ()
    assert [one.value for one in last.choices] == ["q:1", "q:2"]
    assert all(len(one.label) <= 8 for one in last.choices)


def test_choices_are_numbered_without_buttons_or_with_too_few() -> None:
    for buttons in (0, 1):
        (post,) = compose_posts([Text("Which?"), PICK], ChannelCapabilities(400, buttons=buttons))
        assert post.text == "Which?\n\n1. The first one\n2. Second"
        assert post.choices == ()


FILE = Attachment(Media("d1", "image/png", "plot.png"), 2_500_000, "The plot.")


def test_file_within_the_limit_is_a_post_of_its_own() -> None:
    able = ChannelCapabilities(400, media_out=MediaLimits(document=3_000_000))
    text, file = compose_posts([Text("Here:"), FILE], able)
    assert (text.text, file.attachments) == ("Here:", (FILE,))


@pytest.mark.parametrize(
    ("media", "why"),
    [
        (MediaLimits(), "this platform does not support this type of file"),
        (MediaLimits(image=1_000_000), "it has 2.5 MB, and this platform accepts 1.0 MB"),
    ],
)
def test_file_that_cannot_be_sent_is_named_with_the_reason(media: MediaLimits, why: str) -> None:
    (post,) = compose_posts([Text("Here:"), FILE], ChannelCapabilities(400, media_out=media))
    assert post.text == f"Here:\n\n`plot.png` was not sent: {why}. The plot."


def test_length_units_differ() -> None:
    text = "e\u0301\U0001f44d\U0001f3fd\r\n"
    assert [LENGTH_IN[unit](text) for unit in LengthUnit] == [6, 8, 13, 3]


@given(st.text(max_size=80), st.integers(10, 60), units)
def test_keep_end_fits_and_ends_with_the_end(text: str, most: int, unit: LengthUnit) -> None:
    length = LENGTH_IN[unit]
    kept = keep_end(text, most, length)
    assert length(kept) <= most
    assert text.endswith(kept.removeprefix("…"))
    assert is_boundary(text, len(text) - len(kept.removeprefix("…")))
    assert count_graphemes(kept) <= count_graphemes(text)
