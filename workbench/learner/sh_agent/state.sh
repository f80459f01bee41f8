# What others read: state.json and decision.json.

reason() {
    why="{\"text\": \"$1\", \"code\": \"${2-}\", \"hint\": \"${3-}\"}"
}

# write_state PHASE [durable]: whole or not at all. Blocks that a spare file has take new content on a full disk too.
write_state() {
    state=$(
        printf '{"format": 1, "phase": "%s", %s, ' "$1" "$launch_identity"
        printf '"pid": %s, "start_ticks": %s, "boot_id": "%s", ' $$ "$own_ticks" "$boot_id"
        printf '"scribe_pid": %s, "command_pid": %s, "command_ticks": %s, ' "$scribe" "$command_pid" "$command_ticks"
        printf '"output_pipe": null, "started_us": %s, "ended_us": %s, ' "$started_us" "$ended_us"
        printf '"exit_code": %s, "signal": %s, "decided": %s, ' "$exit_code" "$signal" "$decided"
        printf '"stopped": "%s", "reason": %s, "stall": "%s", "lockless": %s}' "$stopped" "$why" "$stall" "$lockless"
    )
    state_new=$folder/state.json.new
    if ! printf '%s\n' "$state" 2>/dev/null >"$state_new"; then
        rm -f "$state_new"
        state_new=$folder/state.json.spare
        printf '%-4095s\n' "$state" | dd of="$state_new" conv=notrunc 2>/dev/null || return 1
    elif [ $# -gt 1 ] && dd if="$state_new" of="$state_new.sure" conv=fsync 2>/dev/null; then
        # dd can bring one file to the disk; sync would wait for all that the machine writes.
        mv -f "$state_new.sure" "$state_new"
    fi
    mv -f "$state_new" "$folder/state.json" 2>/dev/null || return 1
    [ -e "$folder/state.json.spare" ] || printf '%4096s' '' 2>/dev/null >"$folder/state.json.spare" ||
        rm -f "$folder/state.json.spare"
}

# How many of the attempt's learners have ended by themselves, this one too.
count_ended() {
    ended=1
    for other in "$launch_attempt_dir"/learner-*/state.json; do
        [ "$other" = "$folder/state.json" ] && continue
        grep -Eq '"(exit_code|signal)": *[0-9]' "$other" 2>/dev/null &&
            grep -q '"stopped": *""' "$other" && ended=$((ended + 1))
    done
}

# Say that this learner's end decides the attempt, if it does and no other's did before.
decide() {
    failed=true
    case $why in
    null) failed=false ;;
    *'"S206"'*) [ "$exit_code" = 0 ] && failed=false ;;
    esac
    if [ $failed = false ]; then
        count_ended
        [ "$ended" -ge "$launch_decides_after" ] || return 0
    fi
    now_us
    decision=$launch_attempt_dir/decision.json
    printf '{"learner": %s, "exit_code": %s, "signal": %s, "time_us": %s, "failed": %s}\n' \
        "$launch_learner" "$exit_code" "$signal" "$time_us" $failed >"$decision.learner-$launch_learner" || return 1
    ln "$decision.learner-$launch_learner" "$decision" 2>/dev/null || [ -e "$decision" ] ||
        cp "$decision.learner-$launch_learner" "$decision" # a file system without hard links
    rm -f "$decision.learner-$launch_learner"
    grep -Eq "\"learner\": *$launch_learner[,}]" "$decision" && decided=true
    return 0
}
