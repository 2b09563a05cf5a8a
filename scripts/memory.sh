#!/bin/sh
# Print an in-memory folder for test files, or nothing if it lacks space or cannot run programs.
folder=/dev/shm
[ -w "$folder" ] || exit 0
[ "$(df -Pk "$folder" | awk 'NR == 2 { print $4 }')" -gt 2000000 ] || exit 0
tried=$(mktemp "$folder/hermes.XXXXXX") || exit 0
printf '#!/bin/sh\n' >"$tried"
chmod 700 "$tried"
if "$tried" 2>/dev/null; then echo "$folder"; fi
rm -f "$tried"
