# What is done when the command has ended.
# last_line NAME: sets said to the last line of a log, made harmless; never with secrets about, which only a reader masks.
last_line() {
    if [ ! "$launch_secrets_file" ]; then
        said=$(tail -c 8192 "$folder/$1.log" 2>/dev/null | tr '\r' '\n' | tr -cd '\n\040-\176' | grep '[^ ]' | tail -n 1 |
            cut -c 1-200 | sed 's/\\/\\\\/g; s/"/\\"/g; s/ *$//')
    fi
}

# explain: says why what ended by itself has failed, with the last line that it printed, once that is in the file.
explain() {
    if [ "$act" = setup ]; then set -- setup C206 "see setup.log"; else set -- "the command" C201 ''; fi
    if [ "$signal" != null ]; then
        text="$1 was ended by signal $signal (SIG$(kill -l "$signal" 2>/dev/null))"
    else
        text="$1 failed with exit code $exit_code"
    fi
    hint=$3
    case $2:$exit_code in
    C201:127) reason "a command was not found (exit code 127)${said:+: $said}" C202 "check its spelling and PATH" ;;
    C201:126) reason "a command cannot be executed (exit code 126)${said:+: $said}" C202 "check its mode: chmod +x" ;;
    *)
        [ "$signal" = 9 ] && hint="nobody here killed it: the machine may have run out of memory"
        reason "$text${said:+: $said}" "$2" "$hint"
        ;;
    esac
}

# conclude: takes note of the end at once, since the rest may take long.
conclude() {
    if [ "$code" ]; then
        if [ "$code" -gt 128 ] && [ "$code" -le 192 ] && kill -l $((code - 128)) >/dev/null 2>&1; then signal=$((code - 128)); else exit_code=$code; fi
    fi
    if [ "$ended_us" = null ]; then
        now_us
        ended_us=$time_us
    fi
    explained= said=
    if [ "$why" = null ] && [ "$code" ] && [ "$code" != 0 ]; then
        explained=yes
        explain
    fi
    concluded=yes
    [ "$code" ] && known= # its pid may be another's by now
    write_state stopping
    case $stopped in '' | max_runtime) decide ;; esac
    asked= looks_again=10
    [ "$ending" ] || begin_ending 200 # what the command left behind has two seconds
    patience=$((kill_at + 3000))
    until end_members; do
        if [ "$now" -ge $patience ]; then break; fi
        nap 0.05
        obey_stop
    done
    drain
    stall=
    if [ "$explained" ]; then
        last_line "$kept_name"
        explain
    fi
    until write_state exited durable; do wait_for_room; done
    rm -rf "$folder"/state.json.* "$folder"/stop.json.* "$folder"/decision.json.* "$folder/agent.held"
}
