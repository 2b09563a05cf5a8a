# Run one command at the remote end of a connection and leave no process of it behind.
# Prepended to this text: mark, folder, program, terminal, grace (steps to wait for a tree to end)
# and the function `job`, which becomes the command.
# Input comes in frames: a line with a length, then as many bytes; a length of 0 ends the input.
# When the stream itself ends, the connection is gone and the command is ended.
exec 2>/dev/null
say() { printf '\001%s %s\n' "$mark" "$*"; }
cd "$folder" || { say "no 2"; exit 0; }
case $program in
*/*) [ -e "$program" ] || { say "no 2"; exit 0; }
     { [ -f "$program" ] && [ -x "$program" ]; } || { say "no 13"; exit 0; } ;;
*) command -v "$program" >/dev/null || { say "no 2"; exit 0; } ;;
esac
[ -z "$terminal" ] || command -v script >/dev/null || { say "no 25"; exit 0; }
room=$(mktemp -d) && mkfifo "$room/in" || { say "no 28"; exit 0; }
tree() { grep -lsaF "HERMES_JOB=$mark" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do echo "$pid"; done; }
signal() { kill "-$1" $(tree) "-$(cat "$room/group")"; }
alone() { [ -z "$(tree)" ]; }
# Started after the command, with an empty environment: a process that is about to run another
# program looks like this for a moment, so it may belong to the tree.
unclear() {
    grep -Lsa . /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do
        [ "$pid" -gt "$(cat "$room/group")" ] && [ -e "/proc/$pid/exe" ] && echo "$pid"
    done
}
settle() { for _ in $1; do alone && [ -z "$(unclear)" ] && return 0; sleep 0.05; done; alone; }
end() {
    signal TERM; signal CONT
    settle "$grace" || { for _ in 1 2 3 4 5 6 7 8; do signal STOP; signal KILL; settle "1 2" && break; done; }
}
if command -v setsid >/dev/null; then apart=setsid; else apart=; fi
# In the foreground: a shell makes background processes ignore the interrupt key.
begin='echo $$ >"$1/group"; printf "\001%s ok %s\n" "$0" "$$"; shift; exec "$@"'
exec 3<&0
{
    exec 4>"$room/in"
    while IFS= read -r size && [ "$size" -gt 0 ]; do head -c "$size" >&4 || break; done <&3
    exec 4>&-
    cat <&3 >/dev/null
    end
    rm -rf "$room"
} </dev/null >/dev/null &
watcher=$!
(job) <"$room/in" 3<&-
code=$?
settle "1 2 3 4" || { left=$(tree | wc -l); end; }
rm -rf "$room"
say "left ${left:-0} $code"
exec 3<&-
kill -KILL "$watcher"
exit 0
