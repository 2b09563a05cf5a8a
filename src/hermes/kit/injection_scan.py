"""Detect text that looks like prompt injection before it becomes memory.

The patterns are only a hint. The protection is that untrusted content is marked and needs approval.
"""

import re
import unicodedata

_RULES = {
    "tells the agent to forget its rules": r"""
        \b(ignore|disregard|forget|override)\b .{0,40}
        \b(previous|prior|above|earlier|all|any|your)\b .{0,40}
        \b(instructions?|rules?|prompts?|guidelines?|guardrails?)\b""",
    "gives the agent another role": r"""
        \byou[ ]are[ ](now|no[ ]longer)\b
        | \bact[ ]as\b .{0,60} \b(unrestricted|admin|root|system|developer|jailbr\w+)\b""",
    "hides something from the person": r"""
        \b(do[ ]not|don't|never)\b .{0,30} \b(tell|inform|mention|reveal|show)\b .{0,30}
        \b(the[ ])?(user|owner|person|human)\b""",
    "speaks as the system": r"""
        ^\s* (<\|?|\[)? \s* (system|developer) \s* (\|?>|\])? \s* : | <\|im_start\|>""",
    "turns off approvals": r"""
        \b(approv\w+|confirm\w*|sandbox)\b .{0,40}
        \b(off|disable\w*|skip\w*|bypass\w*|not[ ]needed|unnecessary)\b | --yolo\b""",
    "sends secrets elsewhere": r"""
        \b(curl|wget|fetch|post|upload|send|e?mail|exfiltrat\w*)\b .{0,120}
        (\$\{?\w*(key|token|secret|passw)\w*|\.env\b|api[_ -]?keys?|credentials?|\.ssh/|id_rsa)""",
    "reads secrets": r"""
        \b(cat|head|tail|less|dump|base64)\b .{0,60}
        (\.env\b|\.ssh/|id_rsa|\.aws/|auth\.json|\.netrc)""",
    "opens a backdoor": r"authorized_keys | /dev/tcp/ | \bnc\b.{0,20}\s-e\b | \bbash[ ]-i\b",
    "runs downloaded code": r"\b(curl|wget)\b [^\n|]{0,200} \| \s* (ba|z|da)?sh\b",
}
_FLAGS = re.IGNORECASE | re.DOTALL | re.VERBOSE | re.MULTILINE
_PATTERNS = tuple((why, re.compile(rule, _FLAGS)) for why, rule in _RULES.items())
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # control characters
    "\u200b\u200e\u200f\u2060\ufeff\u00ad\u180e"  # zero-width characters
    "\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"  # direction overrides, tags
)


def injection_reason(text: str) -> str:
    """Return what is wrong with the text, to complete "it …"; empty if nothing is."""
    if _INVISIBLE.search(text):
        return "contains invisible characters"
    plain = unicodedata.normalize("NFKC", text)
    return next((why for why, rule in _PATTERNS if rule.search(plain)), "")


def block_injections(text: str) -> str:
    """Replace suspicious paragraphs by a note."""
    if not injection_reason(text):
        return text
    return "\n\n".join(
        f"[BLOCKED: this paragraph {why}]" if (why := injection_reason(part)) else part
        for part in text.split("\n\n")
    )
