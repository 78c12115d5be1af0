#compdef router
# Completion of router for zsh. Load it with: source <(router completion zsh)

_router() {
    local line value
    local -a lines candidates options
    lines=("${(@f)$("${(Q)words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    for line in "${lines[@]}"; do
        case $line in
        '') ;;
        :file) _files ;;
        :folder) _files -/ ;;
        :nospace) options=(-S '') ;;
        *)
            value=${line%%$'\t'*}
            if [[ $line == *$'\t'* ]]; then
                candidates+=("${value//:/\\:}:${line#*$'\t'}")
            else
                candidates+=("${value//:/\\:}")
            fi
            ;;
        esac
    done
    (( ${#candidates} )) && _describe router candidates "${options[@]}"
}

(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _router router
