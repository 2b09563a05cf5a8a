#!/bin/sh
# Run the contract tests in ../shared/seeds through the import names of the public system.
# If they are missing, the script skips them; with HERMES_SEEDS=required it fails.
# It also fails if fewer tests pass than expected.
set -eu
at_least=70
seeds="$(dirname "$0")/../../shared/seeds"
if [ ! -d "$seeds" ]; then
    echo "seeds: NOT RUN: no contract tests in ../shared/seeds"
    [ "${HERMES_SEEDS:-}" != required ] || { echo "seeds: required, but missing"; exit 1; }
    exit 0
fi
seeds=$(cd "$seeds" && pwd)
cd "$(dirname "$0")/.."
# The tests must not touch the user's home.
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
export HERMES_HOME="$room/home"
mkdir "$HERMES_HOME"
set --
while read -r name; do
    case $name in '' | '#'*) ;; *) set -- "$@" "$seeds/$name" ;; esac
done <scripts/seeds.txt
code=0
.venv/bin/python -m pytest -c /dev/null --rootdir "$seeds" -p no:cacheprovider \
    -p hermes.compat.plugin --import-mode=importlib -o asyncio_mode=auto \
    -o asyncio_default_fixture_loop_scope=function --color=no -q "$@" \
    >"$room/said" 2>&1 || code=$?
cat "$room/said"
[ "$code" -eq 0 ] || exit "$code"
passed=$(sed -n 's/^\([0-9][0-9]*\) passed.*/\1/p' "$room/said" | tail -n 1)
if [ "${passed:-0}" -lt "$at_least" ]; then
    echo "seeds: only ${passed:-0} contract tests passed, at least $at_least are expected"
    exit 1
fi
