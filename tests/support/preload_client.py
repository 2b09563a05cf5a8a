"""Be `hermes` for a shell: let the server of a test process run it with our streams.

usage: python -IS preload_client.py SOCKET PROGRAM [ARGUMENT ...]
"""

import json
import os
import socket
import sys

_NUMBER_SIZE = 8

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    cwd = os.getcwd()  # noqa: PTH109 - importing pathlib takes longer than all of this
    request = json.dumps((sys.argv[2:], dict(os.environ), cwd)).encode() + b"\n"
    sent = socket.send_fds(connection, [request], [0, 1, 2])
    if sent < len(request):
        # Not without data: the program may have ended already, and the connection with it.
        connection.sendall(request[sent:])
    connection.recv(_NUMBER_SIZE, socket.MSG_WAITALL)
    status = int.from_bytes(connection.recv(_NUMBER_SIZE, socket.MSG_WAITALL), "big")
sys.exit(os.waitstatus_to_exitcode(status))
