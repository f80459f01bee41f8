# Requests to stop, time limits, the end of the learner that decided.

# announce_end: let should_stop() say yes before the command gets its signal; a request that is there stays.
announce_end() {
    stop_new=$folder/stop.json.new-$$
    if printf '{"kind": "finish", "by": "its machine"}\n' 2>/dev/null >"$stop_new"; then
        ln "$stop_new" "$folder/stop.json" 2>/dev/null || [ -e "$folder/stop.json" ] || mv -f "$stop_new" "$folder/stop.json"
    fi
    rm -f "$stop_new"
}

# obey_stop: reads stop.json, by rename whole; what cannot be read is a halt. One that says finish asks for nothing.
obey_stop() {
    [ -e "$folder/stop.json" ] || return 0
    [ "$stopped" = kill ] && return 0
    kind=halt grace='' by=''
    if text=$(cat "$folder/stop.json" 2>/dev/null); then
        case $text in *'"kind": "finish"'*) return 0 ;; esac
        case $text in *'"kind"'*'"kill"'*) kind=$(printf '%s\n' "$text" | sed -n 's/.*"kind" *: *"\([a-z]*\)".*/\1/p') ;; esac
        grace=$(printf '%s\n' "$text" | sed -n 's/.*"grace_seconds" *: *\([0-9.]*\).*/\1/p')
        # Still escaped as JSON wants it.
        by=$(printf '%s\n' "$text" | sed -nE 's/.*"by" *: *"(([^"\\]|\\.)*)".*/\1/p')
    fi
    [ "$kind" = kill ] || kind=halt
    [ "$kind" = halt ] && [ "$stopped" = halt ] && return 0
    if [ $kind = kill ]; then centi=0 done=killed; else centiseconds "$grace" "$grace_centi"; done=halted; fi
    stop_for $kind "$centi" "$done${by:+ by $by}"
}

# stop_for KIND GRACE TEXT [CODE HINT]: of several reasons the first stands, but who kills has the last word.
stop_for() {
    if [ ! "$concluded" ] && { [ ! "$stopped" ] || [ "$1" = kill ]; }; then
        stopped=$1
        reason "$3" "${4-}" "${5-}"
    fi
    begin_ending "$2"
    write_state stopping
}

# abandon: the learner's folder was removed, so nobody wants it any more or will hear of it.
abandon() {
    kill_at=0
    passes=0
    until end_members || [ $passes -ge 100 ]; do
        nap 0.1
        passes=$((passes + 1))
    done
    if [ "$keeper" != null ]; then kill -s KILL "$keeper" 2>/dev/null; fi
    if [ "$ticker" ]; then kill "$ticker" 2>/dev/null; fi
    exit 0
}

look() {
    [ -d "$folder" ] || abandon
    obey_stop
    if [ "$told_to_end" ] && [ ! "$concluded" ] && [ ! "$ending" ]; then
        reason "the agent was told to end, as by a machine that shuts down" S202
        announce_end
        begin_ending "$grace_centi"
        write_state stopping
    fi
    if [ ! "$stopped$concluded" ]; then
        clock
        if [ "$settle_at" = '' ] && [ "$launch_learners" -gt 1 ] && [ -e "$launch_attempt_dir/decision.json" ]; then
            decider=$(sed -n 's/.*"learner" *: *\([0-9]*\).*/\1/p' "$launch_attempt_dir/decision.json")
            if [ "$decider" ] && [ "$decider" != "$launch_learner" ]; then
                settle_at=$((now + settle_centi)) ended_how=ended
                if grep -q '"failed": *true' "$launch_attempt_dir/decision.json"; then settle_at=$now ended_how=failed; fi
            fi
        fi
        if [ "$settle_at" ] && [ "$now" -ge "$settle_at" ]; then
            stop_for settle "$grace_centi" "stopped, since learner $decider has $ended_how"
        elif [ "$launch_max_runtime_seconds" ] && [ "$now" -ge "$limit_at" ]; then
            stop_for max_runtime "$grace_centi" "ran longer than max_runtime, $launch_max_runtime_seconds s" C204 \
                "raise max_runtime, or resume the job"
        fi
    fi
    if [ "$ending" ]; then end_members; fi
    mind_keeper
}
