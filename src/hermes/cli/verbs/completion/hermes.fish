# Completion of hermes for fish, printed by: hermes completion fish

function __hermes_is_command
    switch "$argv[1]"
@commands@
    end
end

function __hermes_value
    switch "$argv[1]"
@values@
    end
end

function __hermes_word
    switch "$argv[1]"
@words@
    end
end

function __hermes_verbs
    switch "$argv[1]"
@verbs@
    end
end

function __hermes_flags
    switch "$argv[1]"
@flags@
    end
end

function __hermes_profiles
    set -l root "$HOME/.hermes"
    set -q HERMES_HOME; and set root "$HERMES_HOME"
    set root (string replace -r '/profiles/[^/]*/*$' '' -- "$root")
    echo default
    for folder in "$root"/profiles/*/
        string replace -r '.*/([^/]+)/$' '$1' -- "$folder"
    end
end

function __hermes_offer -a kind current profile program
    switch "$kind"
        case '=*'
            string split ' ' -- (string sub -s 2 -- "$kind")
        case file
            __fish_complete_path "$current"
        case folder
            __fish_complete_directories "$current"
        case profile
            __hermes_profiles
        case provider toolset setting
            command $program completion --names "$kind" 2>/dev/null
        case session
            if test -n "$profile"
                command $program -p "$profile" completion --sessions "$current" 2>/dev/null
            else
                command $program completion --sessions "$current" 2>/dev/null
            end
    end
end

function __hermes_complete
    set -l tokens (commandline -opc)
    set -l current (commandline -ct)
    set -l program $tokens[1]
    set -l node hermes
    set -l profile ''
    set -l pending_flag ''
    set -l kind ''
    set -l count 0
    for word in $tokens[2..-1]
        if string match -q -- '\?*' "$kind"
            if string match -q -- '-*' "$word"; or test -n (__hermes_is_command "$node $word" | string collect --allow-empty)
                set pending_flag ''
                set kind ''
            end
        end
        if test -n "$pending_flag"
            contains -- "$pending_flag" -p --profile; and set profile "$word"
            set pending_flag ''
            set kind ''
        else if string match -q -- '--profile=*' "$word"
            set profile (string replace -- '--profile=' '' "$word")
        else if string match -q -- '-*' "$word"
            set kind (__hermes_value "$node $word" | string collect --allow-empty)
            test -n "$kind"; and set pending_flag "$word"
        else if test -n (__hermes_is_command "$node $word" | string collect --allow-empty)
            set node "$node $word"
            set count 0
        else
            set count (math $count + 1)
        end
    end
    if test -z "$pending_flag"; and string match -q -- '--*=*' "$current"
        set -l parts (string split -m 1 = -- "$current")
        set kind (__hermes_value "$node $parts[1]" | string collect --allow-empty)
        __hermes_offer (string replace -r '^\?' '' -- "$kind") "$parts[2]" "$profile" "$program" \
            | string replace -r -- '^' "$parts[1]="
        return
    end
    if test -n "$pending_flag"
        __hermes_offer (string replace -r '^\?' '' -- "$kind") "$current" "$profile" "$program"
        string match -q -- '\?*' "$kind"; or return
    end
    if string match -q -- '-*' "$current"
        __hermes_flags "$node" | string replace '|' \t
    else
        __hermes_verbs "$node" | string replace '|' \t
        if test -z "$pending_flag"
            set kind (__hermes_word "$node $count" | string collect --allow-empty)
            __hermes_offer "$kind" "$current" "$profile" "$program"
        end
    end
end

complete -c hermes -f -a '(__hermes_complete)'
