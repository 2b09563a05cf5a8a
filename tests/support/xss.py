"""Texts that try to run a script, load something or fake a control when they are shown."""

from collections.abc import Generator
from contextlib import contextmanager
from itertools import product

import pytest
from markdown_it import MarkdownIt

CALL = "canary()"
_HTML = (
    "<script>{}</script>",
    "<img src=x onerror={}>",
    "<svg onload={}>",
    "<svg><script>{}</script></svg>",
    "<body onload={}>",
    "<iframe srcdoc='<script>parent.{}</script>'></iframe>",
    "<iframe src=javascript:parent.{}></iframe>",
    "<details open ontoggle={}>x</details>",
    "<input autofocus onfocus={}>",
    "<video><source onerror={}></video>",
    "<audio src=x onerror={}>",
    "<form><button formaction=javascript:{}>Allow once</button></form>",
    "<a href=javascript:{} id=trap>x</a>",
    "<style>@import 'https://evil.example/x.css';</style><img src=x onerror={}>",
    "<link rel=stylesheet href=https://evil.example/x.css><svg onload={}>",
    "<base href=https://evil.example/><img src=x onerror={}>",
    "<template><img src=x onerror={}></template><img src=x onerror={}>",
    "<noscript><p title='</noscript><img src=x onerror={}>'></p></noscript>",
    "<xmp><p title='</xmp><img src=x onerror={}>'></p></xmp>",
    "<hermes-chat><img src=x onerror={}></hermes-chat>",
    "<p data-question=q><button data-action=answer>Allow</button></p><img src=x onerror={}>",
)
_FORMER_HTML = (
    "<object data=javascript:{}></object>",
    "<embed src=javascript:{}>",
    "<math><mi xlink:href=javascript:{}>x</mi></math>",
    "<meta http-equiv=refresh content='0;url=javascript:{}'>",
)
"""Browsers used to run these."""
_WRAPPERS = (
    "{}",
    "text before {} and after",
    "# {}",
    "> {}",
    "- {}\n- more",
    "| a | b |\n|---|---|\n| {} | x |",
    "`{}`",
    "```html\n{}\n```",
)
_LANGUAGE = "```{}\ncode\n```"
"""Only the first word of a language is shown."""
_MARKDOWN = (
    "[x](javascript:{})",
    "[x](JaVaScRiPt:{})",
    "[x](&#106;avascript:{})",
    "<javascript:{}>",
    "&lt;script&gt;{}&lt;/script&gt;",
    "&#60;script>{}</script>",
    "\u202e<script>{}</script>",
    '```"><script>{}</script>\nx\n```',
    "[![x](javascript:{})](javascript:{})",
)
_OTHER_MARKDOWN = (
    "[x](java\nscript:{})",
    "[x](data:text/html,<script>{}</script>)",
    "[x](vbscript:{})",
    "![x](javascript:{})",
    "![x](https://evil.example/a.png)",
    "![x](http://evil.example/a.png 'title\" onload={}')",
    '![" onerror={} x="](https://evil.example/a.png)',
    '[x](https://evil.example/" onmouseover={} x=")',
    '[x](<https://evil.example/" onfocus={} autofocus x=">)',
    '<https://evil.example/"onmouseover={}>',
    "[x]: javascript:{}\n\n[x]",
)
"""What other renderers and browsers ran, or what loads something."""


def attacks() -> list[str]:
    """More than 200 texts; none may call `canary()` or load something."""
    former = [wrapper.format(one) for wrapper, one in product(_WRAPPERS, _FORMER_HTML)]
    languages = [_LANGUAGE.format(one) for one in (*_HTML, *_FORMER_HTML) if " " in one]
    return [*scripts(), *map(_armed, (*former, *languages, *_OTHER_MARKDOWN))]


def scripts() -> list[str]:
    """Those that call `canary()` in a browser of today, if nothing stops them."""
    html = [wrapper.format(one) for wrapper, one in product(_WRAPPERS, _HTML)]
    languages = [_LANGUAGE.format(one) for one in _HTML if " " not in one]
    return [_armed(one) for one in (*html, *languages, *_MARKDOWN)]


def _armed(one: str) -> str:
    return one.replace("{}", CALL)


@contextmanager
def without_sanitiser() -> Generator[None]:
    """Text is not escaped and every link is allowed.

    Whole texts are cached: render only those that no other test renders.
    """

    def unchanged(words: str, quote: bool = True) -> str:
        return words

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hermes.web.html.escape", unchanged)
        patch.setattr("hermes.web.markdown.is_clickable", lambda _: True)
        patch.setattr(MarkdownIt, "validateLink", lambda *_: True)
        yield
