# Sourced by ./corral: prints what completes its command line.
# shellcheck shell=bash disable=SC2154 # `commands`, `stages` and `exit_usage` are the entry's

completions() {
    local words="$commands --help --version" after
    # One list of words a command; both shells choose by the same case.
    after="test) candidates='$stages -k' ;;
        bench) candidates='inbound tamq bridge end-to-end --quick --check --json' ;;
        chaos) candidates='inbound tamq bridge --seeds --seed' ;;
        completions) candidates='bash zsh' ;;
        docs) candidates='--dir --serve' ;;
        demo) candidates='--seed --messages --json --server --keep --report --no-rooms' ;;
        status) candidates='--dir --watch --json' ;;
        doctor) candidates='--dir --all --json' ;;
        setup) candidates='--test' ;;
        up) candidates='redis runner daemon --dir --agent --server' ;;
        vm) candidates='list image run debug --seed' ;;"
    case ${1-} in
        bash)
            cat <<BASH
_corral_program() { # the program says itself what may follow
    local name=\${COMP_WORDS[1]//-/_}
    env "_\${name^^}_COMPLETE=bash_complete" "COMP_WORDS=\${COMP_WORDS[*]:1}" \\
        "COMP_CWORD=\$((COMP_CWORD - 1))" "\${COMP_WORDS[0]/#\~/\$HOME}" "\${COMP_WORDS[1]}" \\
        2>/dev/null | sed -n 's/^plain,//p'
}
_corral() {
    local candidates='' name=\${COMP_WORDS[1]-}
    case \$name in
        $after
        cowboy | tamq | a2a-bridge | corral-gateway) [ "\$COMP_CWORD" -le 1 ] || candidates=\$(_corral_program) ;;
    esac
    [ "\$COMP_CWORD" -gt 1 ] || candidates='$words'
    COMPREPLY=(\$(compgen -W "\$candidates" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _corral corral ./corral
BASH
            ;;
        zsh)
            cat <<ZSH
#compdef corral
_corral_program() { # the program says itself what may follow
    local name=\${\${(U)words[2]}//-/_}
    env "_\${name}_COMPLETE=bash_complete" "COMP_WORDS=\${words[2,-1]}" \\
        "COMP_CWORD=\$((CURRENT - 2))" \${~words[1]} \$words[2] 2>/dev/null | sed -n 's/^plain,//p'
}
_corral() {
    local candidates='$words'
    if ((CURRENT > 2)); then case \$words[2] in
        $after
        cowboy | tamq | a2a-bridge | corral-gateway) candidates=\$(_corral_program) ;;
        *) _files; return ;;
    esac; fi
    compadd -- \${=candidates}
}
compdef _corral corral ./corral
ZSH
            ;;
        *) die "$exit_usage" 'usage: ./corral completions bash|zsh' ;;
    esac
}
