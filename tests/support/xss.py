"""Texts that try to run a script, load something or fake a control when they are shown."""

from itertools import product

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
    "<object data=javascript:{}></object>",
    "<embed src=javascript:{}>",
    "<math><mi xlink:href=javascript:{}>x</mi></math>",
    "<form><button formaction=javascript:{}>Allow once</button></form>",
    "<a href=javascript:{} id=trap>x</a>",
    "<style>@import 'https://evil.example/x.css';</style><img src=x onerror={}>",
    "<link rel=stylesheet href=https://evil.example/x.css><svg onload={}>",
    "<meta http-equiv=refresh content='0;url=javascript:{}'>",
    "<base href=https://evil.example/><img src=x onerror={}>",
    "<template><img src=x onerror={}></template><img src=x onerror={}>",
    "<noscript><p title='</noscript><img src=x onerror={}>'></p></noscript>",
    "<xmp><p title='</xmp><img src=x onerror={}>'></p></xmp>",
    "<hermes-chat><img src=x onerror={}></hermes-chat>",
    "<p data-question=q><button data-action=answer>Allow</button></p><img src=x onerror={}>",
)
_WRAPPERS = (
    "{}",
    "text before {} and after",
    "# {}",
    "> {}",
    "- {}\n- more",
    "| a | b |\n|---|---|\n| {} | x |",
    "`{}`",
    "```html\n{}\n```",
    "```{}\ncode\n```",
)
_MARKDOWN = (
    "[x](javascript:{})",
    "[x](JaVaScRiPt:{})",
    "[x](java\nscript:{})",
    "[x](&#106;avascript:{})",
    "[x](data:text/html,<script>{}</script>)",
    "[x](vbscript:{})",
    "![x](javascript:{})",
    "![x](https://evil.example/a.png)",
    "![x](http://evil.example/a.png 'title\" onload={}')",
    '![" onerror={} x="](https://evil.example/a.png)',
    '[x](https://evil.example/" onmouseover={} x=")',
    '[x](<https://evil.example/" onfocus={} autofocus x=">)',
    "<javascript:{}>",
    '<https://evil.example/"onmouseover={}>',
    "[x]: javascript:{}\n\n[x]",
    "&lt;script&gt;{}&lt;/script&gt;",
    "&#60;script>{}</script>",
    "\u202e<script>{}</script>",
    '```"><script>{}</script>\nx\n```',
    "[![x](javascript:{})](javascript:{})",
)


def attacks() -> list[str]:
    """More than 200 texts; each calls `canary()` if it gets through."""
    html = [wrapper.format(one) for wrapper, one in product(_WRAPPERS, _HTML)]
    return [one.replace("{}", CALL) for one in (*html, *_MARKDOWN)]
