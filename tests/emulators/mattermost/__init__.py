"""An emulator of a Mattermost server."""
