# A learner from its start to its end.

# A learner whose agent was killed: nothing is started again, what is left is ended, and that is recorded.
take_over() {
    field() { sed -nE "s/.*\"$1\": *\"?([^,\"}]*).*/\1/p" "$folder/state.json"; }
    started_us=$(field started_us) booted=$(field boot_id)
    command_pid=$(field command_pid) command_ticks=$(field command_ticks)
    exit_code=$(field exit_code) signal=$(field signal)
    ended_us=$(field ended_us)
    stopped=$(sed -nE 's/.*"stopped": *"([a-z_]*)".*/\1/p' "$folder/state.json")
    for known in started_us command_pid command_ticks exit_code signal ended_us; do
        eval "case \$$known in '' | *[!0-9]*) $known=null ;; esac"
    done
    if [ "$exit_code$signal" = nullnull ]; then
        reason "the agent was killed while the command ran" S202
        case $booted in
        '' | "$boot_id") ;;
        *) reason "the machine was restarted while it ran" S203 ;;
        esac
    elif [ ! "$stopped" ]; then
        reason "its agent was killed before all output was saved: what was printed last may be missing" S206
    fi
    # Its session is its pid, as long as that is its pid.
    if [ "$booted" = "$boot_id" ] && stat_of "$command_pid" && [ "$stat_ticks" = "$command_ticks" ]; then
        known=$command_pid
        if [ "$tool_setsid" ]; then session=$command_pid; fi
    fi
    begin_ending "$grace_centi"
    conclude
    exit 0
}

guard() {
    folder=$1
    boot_id= own_ticks=0
    read -r boot_id 2>/dev/null </proc/sys/kernel/random/boot_id
    if stat_of $$; then own_ticks=$stat_ticks; fi
    # GNU's env takes back what is ignored, which no shell can: by whoever started it, and in what runs beside it.
    tool_env=$(command -v env)
    "$tool_env" --default-signal "$tool_env" >/dev/null 2>&1 || tool_env=
    tool_flock=$(command -v flock) tool_setsid=$(command -v setsid) tool_taskset=$(command -v taskset)
    [ -r "$folder/launch.sh" ] || {
        echo "$folder cannot be started: it holds no launch.sh" >&2
        exit 66
    }
    . "$folder/launch.sh"
    centiseconds "$launch_grace_seconds" 3000
    grace_centi=$centi
    centiseconds "$launch_settle_seconds" 6000
    settle_centi=$centi
    clock
    centiseconds "$launch_max_runtime_seconds" 0
    limit_at=$((now + centi))
    ours=$$
    exit_code=null signal=null decided=false stopped= why=null stall= act=command phase=starting
    started_us=null ended_us=null command_pid=null command_ticks=null session= known= keeper=null scribe=null keeper_tries=0
    concluded= ending= kill_at=0 asked= settle_at= told_to_end= code= kept_name=output ticker=
    take_lock
    cd /
    if [ -e "$folder/state.json" ]; then
        case $(sed -n 's/.*"phase": *"\([a-z]*\)".*/\1/p' "$folder/state.json") in
        exited) exit 0 ;;
        starting) ;;
        *) take_over ;;
        esac
    fi
    if [ "$launch_secrets_file" ] && [ ! -r "$launch_secrets_file" ]; then
        reason "the secrets cannot be read: $launch_secrets_json" S101
        conclude
        exit 66
    fi
    until write_state starting; do wait_for_room; done
    # What a request to stop (two of them) and a decision are written into on a disk that takes no new file.
    for spare in stop.json.spare stop.json.old decision.json.spare; do keep_spare "$folder/$spare"; done
    until mkfifo "$folder/events.$$" 2>/dev/null; do wait_for_room; done
    exec 7<>"$folder/events.$$" 8>"$folder/events.$$"
    rm -f "$folder/events.$$"
    trap 'told_to_end=yes' TERM INT
    trap '' HUP PIPE
    (
        trap '' TERM INT HUP
        trap - PIPE
        exec 7<&- 9>&-
        ticks=0
        # Often at first: most commands that end soon are stopped soon.
        while [ $ticks -lt 20 ]; do nap 0.1 && echo tick && ticks=$((ticks + 1)); done >&8
        while nap 0.5; do echo tick || exit; done >&8
    ) &
    ticker=$!
    ours="$ours $ticker"
    look
    if [ ! "$ending" ] && ! { cd "$launch_cwd" 2>/dev/null && cd /; }; then
        reason "the working folder cannot be entered: $launch_cwd_json" S101
    elif [ ! "$ending" ] && [ "$launch_setup" ]; then
        start setup "$launch_setup" setup setup
        attend
        if [ "$code" = 0 ] && [ "$why" = null ]; then
            exec 5<&-
            code= keeper=null
            start running "$launch_command" command output
            attend
        elif [ "$code" = 0 ]; then
            code= # the command has none
        fi
    elif [ ! "$ending" ]; then
        start running "$launch_command" command output
        attend
    fi
    kill "$ticker" 2>/dev/null
    conclude
}

case ${1-}:$# in
guard:2)
    case $2 in /*) guard "$2" ;; *) guard "$(pwd)/$2" ;; esac
    ;;
version:1) echo "$version" ;;
*) usage ;;
esac
