"""Free ports for programs that cannot choose one themselves."""

import socket


def unused_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
