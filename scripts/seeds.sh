#!/bin/sh
# Run the contract tests that lie beside the project, through the old import names.
# The list grows with what is built; without the folder there is nothing to do.
set -eu
seeds="$(dirname "$0")/../../shared/seeds"
if [ ! -d "$seeds" ]; then
    echo "seeds: the contract tests are not beside this checkout; nothing to run"
    exit 0
fi
seeds=$(cd "$seeds" && pwd)
cd "$(dirname "$0")/.."
selected=$(sed -e 's/#.*//' -e '/^ *$/d' scripts/seeds.txt | sed "s|^|$seeds/|")
# What they begin must not touch the home of whoever runs them.
HERMES_HOME=$(mktemp -d)
export HERMES_HOME
trap 'rm -rf "$HERMES_HOME"' EXIT
# shellcheck disable=SC2086
.venv/bin/python -m pytest -c /dev/null --rootdir "$seeds" -p no:cacheprovider \
    -p hermes.compat.plugin --import-mode=importlib -o asyncio_mode=auto -o asyncio_default_fixture_loop_scope=function -q $selected
