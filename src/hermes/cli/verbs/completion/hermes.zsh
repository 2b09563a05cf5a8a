#compdef hermes
# Completion of hermes for zsh, printed by: hermes completion zsh

_hermes_is_place() {
    case "$1" in
@places@
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
    local place=hermes profile= awaited= kind= word=
    local -i count=0 i
    for (( i = 2; i < CURRENT; i++ )); do
        word="${(Q)words[i]}"
        if [[ $kind == \?* && ( $word == -* || -n $(_hermes_is_place "$place $word") ) ]]; then
            awaited= kind=
        fi
        if [[ -n $awaited ]]; then
            [[ $awaited == (-p|--profile) ]] && profile="$word"
            awaited= kind=
        elif [[ $word == --profile=* ]]; then
            profile="${word#*=}"
        elif [[ $word == -* ]]; then
            kind="$(_hermes_value "$place $word")"
            [[ -n $kind ]] && awaited="$word"
        elif [[ -n $(_hermes_is_place "$place $word") ]]; then
            place="$place $word" count=0
        else
            count=$(( count + 1 ))
        fi
    done
    if [[ -z $awaited && $current == --*=* ]]; then
        awaited="${current%%=*}"
        kind="$(_hermes_value "$place $awaited")"
        compset -P '*='
        current="${current#*=}"
    fi
    if [[ -n $awaited ]]; then
        _hermes_offer "${kind#\?}"
        [[ $kind == \?* ]] || return 0
    fi
    if [[ $current == -* ]]; then
        _hermes_listed flag "$(_hermes_flags "$place")"
    else
        _hermes_listed command "$(_hermes_verbs "$place")"
        [[ -n $awaited ]] || _hermes_offer "$(_hermes_word "$place $count")"
    fi
    return 0
}

if [[ $funcstack[1] == _hermes ]]; then
    _hermes "$@"
else
    compdef _hermes hermes
fi
