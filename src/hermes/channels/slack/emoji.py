"""Slack's names of emoji; reactions are sent and received by name."""

from collections.abc import Mapping

_BY_NAME: Mapping[str, str] = {
    "+1": "👍", "-1": "👎", "eyes": "👀", "white_check_mark": "✅", "heavy_check_mark": "✔️",
    "x": "❌", "heart": "❤️", "tada": "🎉", "fire": "🔥", "rocket": "🚀", "pray": "🙏",
    "clap": "👏", "wave": "👋", "raised_hands": "🙌", "muscle": "💪", "ok_hand": "👌",
    "joy": "😂", "smile": "😄", "grinning": "😀", "slightly_smiling_face": "🙂", "wink": "😉",
    "thinking_face": "🤔", "sob": "😭", "cry": "😢", "rage": "😡", "open_mouth": "😮",
    "heart_eyes": "😍", "sweat_smile": "😅", "sunglasses": "😎", "100": "💯", "star": "⭐",
    "sparkles": "✨", "bulb": "💡", "warning": "⚠️", "question": "❓", "exclamation": "❗",
    "no_entry": "⛔", "no_entry_sign": "🚫", "hourglass_flowing_sand": "⏳", "hourglass": "⌛",
    "rotating_light": "🚨", "bug": "🐛", "lock": "🔒", "key": "🔑", "memo": "📝",
    "pushpin": "📌", "paperclip": "📎", "mag": "🔍", "bell": "🔔", "zap": "⚡", "skull": "💀",
    "robot_face": "🤖", "point_up": "☝️", "shrug": "🤷", "facepalm": "🤦", "infinity": "♾️",
    "arrows_counterclockwise": "🔄", "stopwatch": "⏱️", "package": "📦", "coffee": "☕",
    "beers": "🍻", "handshake": "🤝", "thumbsup": "👍", "thumbsdown": "👎",
}  # fmt: skip
_VARIATION = "\ufe0f"
_NAMES: Mapping[str, str] = {
    sign.rstrip(_VARIATION): name for name, sign in reversed(list(_BY_NAME.items()))
}


def emoji_named(name: str) -> str:
    """The emoji, or `:name:` if it is one of the workspace's own or a rare one."""
    bare = name.partition("::")[0]  # the rest is a skin tone
    return _BY_NAME.get(bare, f":{bare}:")


def name_of(emoji: str) -> str:
    """Slack's name of the emoji; empty if it is not known here."""
    if emoji.startswith(":") and emoji.endswith(":"):
        return emoji.strip(":")
    return _NAMES.get(emoji.rstrip(_VARIATION), "")
