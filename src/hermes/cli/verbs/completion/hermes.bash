# Completion of hermes for bash, printed by: hermes completion bash

_hermes_is_command() {
    case "$1" in
@commands@
    esac
}

_hermes_value() {
    case "$1" in
@values@
    esac
}

_hermes_word() {
    case "$1" in
@words@
    esac
}

_hermes_verbs() {
    case "$1" in
@verbs@
    esac
}

_hermes_flags() {
    case "$1" in
@flags@
    esac
}

_hermes_profiles() {
    local root="${HERMES_HOME:-$HOME/.hermes}" folder
    case "$root" in
        */profiles/*) root="${root%/profiles/*}" ;;
    esac
    printf '%s\n' default
    for folder in "$root"/profiles/*/; do
        [[ -d $folder ]] && basename "$folder"
    done
}

_hermes_offer() {
    case "$1" in
        '='*) printf '%s\n' ${1#=} ;;
        file) compgen -f -- "$current" ;;
        folder) compgen -d -- "$current" ;;
        profile) _hermes_profiles ;;
        provider | toolset | setting) "$program" completion --names "$1" 2>/dev/null ;;
        session)
            if [[ -n $profile ]]; then
                "$program" -p "$profile" completion --sessions "$current" 2>/dev/null | cut -f 1
            else
                "$program" completion --sessions "$current" 2>/dev/null | cut -f 1
            fi
            ;;
    esac
}

_hermes_offers() {
    if [[ -n $pending_flag ]]; then
        _hermes_offer "${kind#\?}"
        [[ $kind == \?* ]] || return
    fi
    if [[ $current == -* ]]; then
        _hermes_flags "$node" | cut -d '|' -f 1
    else
        _hermes_verbs "$node" | cut -d '|' -f 1
        [[ -n $pending_flag ]] || _hermes_offer "$(_hermes_word "$node $count")"
    fi
}

_hermes() {
    local program="$1" current="${COMP_WORDS[COMP_CWORD]}"
    local node=hermes profile= pending_flag= kind= count=0 word name i
    COMPREPLY=()
    for (( i = 1; i < COMP_CWORD; i++ )); do
        word="${COMP_WORDS[i]}"
        [[ $word == "=" ]] && continue
        if [[ $kind == \?* && ( $word == -* || -n $(_hermes_is_command "$node $word") ) ]]; then
            pending_flag= kind=
        fi
        if [[ -n $pending_flag ]]; then
            [[ $pending_flag == -p || $pending_flag == --profile ]] && profile="$word"
            pending_flag= kind=
        elif [[ $word == -* ]]; then
            kind="$(_hermes_value "$node $word")"
            [[ -n $kind ]] && pending_flag="$word"
        elif [[ -n $(_hermes_is_command "$node $word") ]]; then
            node="$node $word" count=0
        else
            count=$(( count + 1 ))
        fi
    done
    [[ $current == "=" ]] && current=
    case "$kind$(_hermes_word "$node $count")" in
        *file*|*folder*) compopt -o filenames 2>/dev/null ;;
    esac
    while IFS= read -r name; do
        [[ $name == "$current"* ]] && COMPREPLY+=("$name")
    done < <(_hermes_offers)
    return 0
}

complete -F _hermes hermes
