"""Names of emoji, for platforms that send and receive reactions by name."""

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
    "point_up": "☝️", "infinity": "♾️", "arrows_counterclockwise": "🔄", "stopwatch": "⏱️",
    "package": "📦", "coffee": "☕", "beers": "🍻", "handshake": "🤝", "laughing": "😆",
    "blush": "😊", "confused": "😕", "disappointed": "😞", "scream": "😱",
    "heavy_multiplication_x": "✖️", "hammer_and_wrench": "🛠️", "speech_balloon": "💬",
    "thumbsup": "👍", "thumbsdown": "👎",
}  # fmt: skip
_VARIATION = "\ufe0f"


class EmojiNames:
    """The common names, and those that only this platform has (`own`)."""

    def __init__(self, own: Mapping[str, str]) -> None:
        # Of several names, the first one is sent.
        self._by_name = {**own, **_BY_NAME}
        self._names = {
            sign.rstrip(_VARIATION): name for name, sign in reversed(self._by_name.items())
        }

    def emoji(self, name: str) -> str:
        """Return the emoji, or `:name:` for a custom or rare one."""
        bare = name.partition("::")[0]  # the rest is a skin tone
        return self._by_name.get(bare, f":{bare}:")

    def name(self, emoji: str) -> str:
        """Return the name of an emoji; empty if it is not known."""
        if emoji.startswith(":") and emoji.endswith(":"):
            return emoji.strip(":")
        return self._names.get(emoji.rstrip(_VARIATION), "")


SLACK = EmojiNames({"robot_face": "🤖", "shrug": "🤷", "facepalm": "🤦"})
MATTERMOST = EmojiNames({"thinking": "🤔", "robot": "🤖", "stop_sign": "🛑"})
