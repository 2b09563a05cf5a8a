"""Run llama.cpp in a process of its own: told what by one line, gone when its input ends.

This file is run as a script, with nothing of the house: what goes wrong here takes nothing along.
"""

import json
import os
import sys
from importlib import import_module
from typing import Any

READY = "hermes-engine "
"""What the one line begins with that says where it listens."""


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    if asked["engine"]:
        sys.path.insert(0, asked["engine"])
    # Installed apart, and without types.
    xllamacpp: Any = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = asked["weights"]
    params.n_ctx = asked["window"]
    params.n_parallel = 1
    params.cpuparams.n_threads = asked["threads"]
    params.cpuparams_batch.n_threads = asked["threads"]
    params.cache_prompt = True
    params.cache_ram_mib = asked["cache"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [asked["token"]]
    params.ui = False
    params.endpoint_slots = False
    params.fit_params = False
    params.verbosity = 1
    server = xllamacpp.Server(params)
    line = READY + json.dumps({"address": server.listening_address})
    print(line, flush=True)  # noqa: T201 - this is how a child speaks
    sys.stdin.read()
    # Its threads are not waited for: whoever owned us is gone.
    os._exit(0)


if __name__ == "__main__":
    main()
