# Completion of router for fish. Load it with: router completion fish | source

function __router_complete
    set -l words (commandline -opc)
    set -l cur (commandline -ct)
    for line in ($words[1] __complete $words[2..-1] "$cur" 2>/dev/null)
        switch $line
            case :file
                __fish_complete_path "$cur"
            case :folder
                __fish_complete_directories "$cur" ''
            case ':*'
            case '*'
                echo $line
        end
    end
end

complete -c router -f -a '(__router_complete)'
