from hermes.kit.redact import MASK, Redactor
from support.cases import cases

PEM = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA0Zx4\nq7/9Zk3JcVx2Lw8sPdYt\n-----END KEY-----"


def test_a_secret_of_several_lines_is_masked_line_by_line():
    """A file is shown with numbers before its lines, and a page may begin in the middle."""
    numbered = "\n".join(f"{n}|{line}" for n, line in enumerate(PEM.split("\n"), 7))
    text = Redactor([PEM]).redact_values(numbered)
    assert text == f"7|-----BEGIN KEY-----\n8|{MASK}\n9|{MASK}\n10|-----END KEY-----"


@cases("sign", "?&")
@cases("name", ["apikey", "API-Key", "x_api_key", "access_key", "X-Amz-Signature", "authToken"])
def test_keys_in_a_query_are_masked(sign: str, name: str):
    text = Redactor().redact(f"GET https://h/v1{sign}{name}=t0ps3cret&page=2 now")
    assert text == f"GET https://h/v1{sign}{name}={MASK}&page=2 now"


@cases(
    ("address", "shown"),
    [
        ("https://t0ps3cret@git.example/x", f"https://{MASK}@git.example/x"),
        ("https://me:t0ps3cret@git.example/x", f"https://me:{MASK}@git.example/x"),
        ("ssh://gitmaster@git.example/x", "ssh://gitmaster@git.example/x"),
        ("https://x.example/@somebody", "https://x.example/@somebody"),
        (
            "https://hooks.slack.com/services/T01/B02/abcdefghijklmnop",
            f"https://hooks.slack.com/services/{MASK}",
        ),
        (
            "https://discord.com/api/webhooks/123456/abcdefghijklmnop-_x",
            f"https://discord.com/api/webhooks/123456/{MASK}",
        ),
        ("https://x.example/a?monkey=1&keyword=x&author=me", None),
    ],
)
def test_urls_with_credentials_are_masked(address: str, shown: str | None):
    redactor = Redactor()
    assert redactor.redact(address) == (shown or address)
    assert redactor.redact(redactor.redact(address)) == redactor.redact(address)
