"""Mattermost's names of emoji; reactions are sent and received by name."""

_VARIATION = "\ufe0f"
_EMOJI = {
    "+1": "👍", "thumbsup": "👍", "-1": "👎", "thumbsdown": "👎", "eyes": "👀", "x": "❌",
    "white_check_mark": "✅", "heavy_check_mark": "✔", "heavy_multiplication_x": "✖",
    "heart": "❤", "tada": "🎉", "rocket": "🚀", "fire": "🔥", "clap": "👏", "pray": "🙏",
    "ok_hand": "👌", "raised_hands": "🙌", "wave": "👋", "muscle": "💪", "thinking": "🤔",
    "thinking_face": "🤔", "smile": "😄", "grinning": "😀", "slightly_smiling_face": "🙂",
    "joy": "😂", "laughing": "😆", "wink": "😉", "blush": "😊", "heart_eyes": "😍", "cry": "😢",
    "sob": "😭", "confused": "😕", "disappointed": "😞", "open_mouth": "😮", "scream": "😱",
    "rage": "😡", "sunglasses": "😎", "100": "💯", "star": "⭐", "warning": "⚠", "bulb": "💡",
    "question": "❓", "exclamation": "❗", "hourglass": "⌛", "arrows_counterclockwise": "🔄",
    "no_entry": "⛔", "stop_sign": "🛑", "zap": "⚡", "memo": "📝", "robot": "🤖", "bug": "🐛",
    "hammer_and_wrench": "🛠", "speech_balloon": "💬", "lock": "🔒", "key": "🔑", "bell": "🔔",
}  # fmt: skip
_NAMES = {emoji: name for name, emoji in reversed(_EMOJI.items())}


def emoji_named(name: str) -> str:
    """The emoji, or `:name:` if it is one of the server's own or a rare one."""
    return _EMOJI.get(name, f":{name}:")


def name_of(emoji: str) -> str:
    """Mattermost's name of the emoji; empty if it is not known here."""
    if emoji.startswith(":") and emoji.endswith(":"):
        return emoji.strip(":")
    return _NAMES.get(emoji.rstrip(_VARIATION), "")
