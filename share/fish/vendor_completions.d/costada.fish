# Completion of costada for fish: the command itself says what may stand at the cursor.
function __costada_complete
    _COSTADA_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=$argv[1] _TYPER_COMPLETE_ARGS=(commandline -cp) costada
end
complete --command costada --no-files --condition '__costada_complete is-args' --arguments '(__costada_complete get-args)'
