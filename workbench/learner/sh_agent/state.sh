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
    # Filled up, as the file may be read as far as the size of the one that it replaces alone (rclone).
    if ! printf '%-1023s\n' "$state" 2>/dev/null >"$state_new"; then
        rm -f "$state_new"
        state_new=$folder/state.json.spare
        write_spare "$state_new" "$state" || return 1
    elif [ $# -gt 1 ] && dd if="$state_new" of="$state_new.sure" conv=fsync 2>/dev/null; then
        # dd can bring one file to the disk; sync would wait for all that the machine writes.
        mv -f "$state_new.sure" "$state_new"
    fi
    mv -f "$state_new" "$folder/state.json" 2>/dev/null || return 1
    keep_spare "$folder/state.json.spare"
}

# keep_spare FILE: a file of one block; a disk that takes no new file takes new content in it.
keep_spare() {
    [ -e "$1" ] || printf '%4096s' '' 2>/dev/null >"$1" || rm -f "$1"
}

# write_spare FILE TEXT: fails where there is no such file.
write_spare() {
    [ -f "$1" ] && printf '%-4095s\n' "$2" | dd of="$1" conv=notrunc 2>/dev/null
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
    decision_new=$decision.learner-$launch_learner
    decision_text=$(printf '{"learner": %s, "exit_code": %s, "signal": %s, "time_us": %s, "failed": %s}' \
        "$launch_learner" "$exit_code" "$signal" "$time_us" $failed)
    if ! printf '%s\n' "$decision_text" 2>/dev/null >"$decision_new"; then
        rm -f "$decision_new"
        decision_new=$folder/decision.json.spare
        write_spare "$decision_new" "$decision_text" || return 1
    fi
    ln "$decision_new" "$decision" 2>/dev/null || [ -e "$decision" ] || {
        rm -f "$folder/stop.json.old" # tmpfs counts links as inodes
        ln "$decision_new" "$decision" 2>/dev/null
    } || [ -e "$decision" ] || cp "$decision_new" "$decision" # a file system without hard links
    rm -f "$decision_new"
    grep -Eq "\"learner\": *$launch_learner[,}]" "$decision" && decided=true
    return 0
}
