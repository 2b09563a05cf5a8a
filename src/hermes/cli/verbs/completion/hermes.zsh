#compdef hermes
# Completion of hermes for zsh, printed by: hermes completion zsh

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

_hermes_offer() {
    local root="${HERMES_HOME:-$HOME/.hermes}"
    local -a offers chosen
    case "$1" in
        '='*) compadd -- ${=1#=} ;;
        file) _files ;;
        folder) _files -/ ;;
        profile)
            [[ $root == */profiles/* ]] && root="${root%/profiles/*}"
            compadd -- default "$root"/profiles/*(N/:t)
            ;;
        provider | toolset | setting)
            compadd -- ${(f)"$("$program" completion --names "$1" 2>/dev/null)"}
            ;;
        session)
            [[ -n $profile ]] && chosen=(-p "$profile")
            offers=(${(f)"$("$program" $chosen completion --sessions "$PREFIX" 2>/dev/null)"})
            offers=("${(@)offers//:/ }")
            offers=("${(@)offers/$'\t'/:}")
            _describe -V session offers
            ;;
    esac
}

_hermes_listed() {
    local label="$1"
    local -a offers
    offers=("${(@f)2}")
    [[ -n $2 ]] || return
    offers=("${(@)offers//:/\\:}")
    offers=("${(@)offers/|/:}")
    if [[ $label == flag ]]; then
        _describe -o $label offers
    else
        _describe $label offers
    fi
}

_hermes() {
    local program="${(Q)words[1]}" current="${words[CURRENT]}"
    local node=hermes profile= pending_flag= kind= word=
    local -i count=0 i
    for (( i = 2; i < CURRENT; i++ )); do
        word="${(Q)words[i]}"
        if [[ $kind == \?* && ( $word == -* || -n $(_hermes_is_command "$node $word") ) ]]; then
            pending_flag= kind=
        fi
        if [[ -n $pending_flag ]]; then
            [[ $pending_flag == (-p|--profile) ]] && profile="$word"
            pending_flag= kind=
        elif [[ $word == --profile=* ]]; then
            profile="${word#*=}"
        elif [[ $word == -* ]]; then
            kind="$(_hermes_value "$node $word")"
            [[ -n $kind ]] && pending_flag="$word"
        elif [[ -n $(_hermes_is_command "$node $word") ]]; then
            node="$node $word" count=0
        else
            count=$(( count + 1 ))
        fi
    done
    if [[ -z $pending_flag && $current == --*=* ]]; then
        pending_flag="${current%%=*}"
        kind="$(_hermes_value "$node $pending_flag")"
        compset -P '*='
        current="${current#*=}"
    fi
    if [[ -n $pending_flag ]]; then
        _hermes_offer "${kind#\?}"
        [[ $kind == \?* ]] || return 0
    fi
    if [[ $current == -* ]]; then
        _hermes_listed flag "$(_hermes_flags "$node")"
    else
        _hermes_listed command "$(_hermes_verbs "$node")"
        [[ -n $pending_flag ]] || _hermes_offer "$(_hermes_word "$node $count")"
    fi
    return 0
}

if [[ $funcstack[1] == _hermes ]]; then
    _hermes "$@"
else
    compdef _hermes hermes
fi
