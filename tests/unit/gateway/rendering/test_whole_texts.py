"""No word of a document is lost or moved, whatever its markup, in any dialect."""

from hypothesis import given

from hermes.gateway.rendering.posts import render_text
from hermes.ports.channel import ChannelCapabilities, Markup
from support.cases import cases
from support.examples import at_most
from support.rendered_texts import DOCUMENTS, word_numbers


@cases("markup", Markup)
def test_every_word_of_a_document_is_in_its_posts(markup: Markup) -> None:
    @given(DOCUMENTS)
    @at_most(40)
    def check(text: str) -> None:
        for most in (100, 4000):
            posts = render_text(text, ChannelCapabilities(most, markup=markup))
            numbers = [*range(len(word_numbers(text)))]
            assert word_numbers("\n".join(post.text for post in posts)) == numbers
            assert word_numbers("\n".join(post.plain for post in posts)) == numbers

    check()
