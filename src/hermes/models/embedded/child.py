"""Run llama.cpp in a child process that exits when its standard input closes.

Run as a script that does not import Hermes. Its first input line is the configuration as JSON.
"""

import json
import os
import sys
from importlib import import_module
from typing import Any

READY = "hermes-engine "
"""Prefix of the line that reports the address."""


def main() -> None:
    options = json.loads(sys.stdin.readline())
    if options["engine"]:
        sys.path.insert(0, options["engine"])
    # Installed separately, and untyped.
    xllamacpp: Any = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = options["weights"]
    params.n_ctx = options["window"]
    params.n_parallel = 1
    params.cpuparams.n_threads = options["threads"]
    params.cpuparams_batch.n_threads = options["threads"]
    params.cache_prompt = True
    params.cache_ram_mib = options["cache"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [options["token"]]
    params.ui = False
    params.endpoint_slots = False
    params.fit_params = False
    params.verbosity = 1
    server = xllamacpp.Server(params)
    line = READY + json.dumps({"address": server.listening_address})
    print(line, flush=True)  # noqa: T201 - read by the parent process
    sys.stdin.read()
    # Its threads are not joined: the parent is gone.
    os._exit(0)


if __name__ == "__main__":
    main()
