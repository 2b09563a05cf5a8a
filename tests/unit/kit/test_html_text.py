"""HTML to text, in linear time for any page."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.kit.html_text import html_text
from support.cases import cases

ORDINARY = "<p>The ferry <a href='/x'>leaves</a> at noon.</p>\n"
SIZE = 160_000
HOSTILE = (
    "<!--", "<!", "<![CDATA[", "<?", "</", "<a", "<a ", "<a a='", "<a =\"' ='\" ", "<", "&",
    "<script></scrip", "<title>", "<textarea>&", "<svg>", "</object", "&#9999999999", "\n \n",
    "<pre>", "<a =   ",
)  # fmt: skip


@cases(
    ("html", "text"),
    [
        ("<svg><svg></svg>drawn</svg>seen", "seen"),
        ("<svg><object></svg>seen</object>", "seen"),
        ("<svg/>seen<script/>too", "seentoo"),
        ("<SCRIPT>if (a </scripts> b) {}</Script >seen", "seen"),
        ("<title>a <b>c</title>d", "a <b>c\nd"),
        ("<textarea>a &lt; b</textarea>", "a < b"),
        ("a<!-- <p> -- > -->b<!-->c<!--->d", "abcd"),
        ("a<!doctype x>b<?php x ?>c</>d</ x>e", "abcde"),
        ("<a title='1 > 2' alt = \"</p>\">in</a> out", "in out"),
        ("<a title='never closed>in</a> out", "in out"),
        ("a < b <= c <3", "a < b <= c <3"),
        ("a<br/>b<hr>c", "a\nb\nc"),
        ("&amp;lt; &#65;&#x42; &#99999999999999999999;!", "&lt; AB �!"),
        ("seen<!-- never closed", "seen"),
        ("seen<a href=never-closed", "seen"),
        ("<p> <b> one</b> </p>", "one"),
    ],
)
def test_visible_text(html: str, text: str) -> None:
    assert html_text(html) == text


@given(st.text(alphabet="<>/!-?='\" &#;asvgpre\n", max_size=200))
def test_any_text_is_accepted(html: str) -> None:
    assert html_text(html) == html_text(html).strip()


def test_huge_character_reference_is_replaced() -> None:
    assert html_text("&#" + "9" * 10_000 + ";") == "�"


def effort(html: str) -> float:
    began = time.thread_time()
    html_text(html)
    return time.thread_time() - began


def filled(piece: str) -> str:
    return piece * (SIZE // len(piece))


@pytest.mark.slow
def test_hostile_pages_are_fast() -> None:
    """Read with effort that grows with its square, each of these would take hundreds of times."""
    half = SIZE // 16
    ordinary = max(effort(filled(ORDINARY)) for _ in range(3))
    pages = [
        *map(filled, HOSTILE),
        "<svg>" * half + "</object>" * half,
        "<svg><object>" * half + "</svg>" * half,
        "<a " + "a='" * half,
        "<script>" + "</script" * half,
    ]
    for page in pages:
        assert effort(page) < 20 * ordinary, page[:20]
