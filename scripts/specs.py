"""Write down what the model is told of each tool, so that nobody has to load a tool for that."""

import sys
from pathlib import Path

from hermes.testing.tools import all_tools
from hermes.tools.lazily import SPECS, specs_text

if __name__ == "__main__":
    text = specs_text(all_tools(Path.cwd()))
    SPECS.write_bytes(text)
    sys.stdout.write(f"{SPECS}: {len(text):,} bytes\n")
