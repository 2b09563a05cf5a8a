"""Write the tool specs to `specs.json`, so that they can be sent without loading the tools."""

import sys
from pathlib import Path

from hermes.testing.tools import all_tools
from hermes.tools.catalog import SPECS_FILE, encode_specs

if __name__ == "__main__":
    text = encode_specs(all_tools(Path.cwd()))
    SPECS_FILE.write_bytes(text)
    sys.stdout.write(f"{SPECS_FILE}: {len(text):,} bytes\n")
