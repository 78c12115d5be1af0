# Completion of router for bash. Load it with: source <(router completion bash)

_router() {
    local cur=${COMP_WORDS[COMP_CWORD]} joined= prefix= line value i
    local -a words=()
    # bash splits words at "=". The router expects them whole.
    for ((i = 1; i <= COMP_CWORD; i++)); do
        if ((${#words[@]} > 0)) && [[ ${COMP_WORDS[i]} == "=" || ${COMP_WORDS[i - 1]} == "=" ]]; then
            words[${#words[@]} - 1]+=${COMP_WORDS[i]}
        else
            words+=("${COMP_WORDS[i]}")
        fi
    done
    joined=${words[${#words[@]} - 1]}
    [[ $cur == "=" ]] && cur=
    prefix=${joined%"$cur"}

    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
        :file)
            compopt -o filenames 2>/dev/null
            while IFS= read -r value; do COMPREPLY+=("$value"); done < <(compgen -f -- "$cur")
            ;;
        :folder)
            compopt -o filenames 2>/dev/null
            while IFS= read -r value; do COMPREPLY+=("$value"); done < <(compgen -d -- "$cur")
            ;;
        :nospace) compopt -o nospace 2>/dev/null ;;
        *)
            value=${line%%$'\t'*}
            COMPREPLY+=("${value#"$prefix"}")
            ;;
        esac
    done < <("${COMP_WORDS[0]/#\~/$HOME}" __complete "${words[@]}" 2>/dev/null)
}

complete -F _router router
