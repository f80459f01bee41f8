# What pod.sh goes on with where the image has no Python 3.8: any sh with the tools of busybox.
#
# The learner is kept by agent.sh; its output is read from the cluster's own log, and journals are made by who reads it.
. "$given/told.sh"
index=${JOB_COMPLETION_INDEX:-0}
number=$((index + 1))
folder=$journal/attempt/learner-$number

pause() { sleep "$1" 2>/dev/null || sleep 1; }

termination=/dev/termination-log

fail() {
    echo "$1" >&2
    printf '{"reason": {"text": "%s", "code": "%s", "hint": "%s"}}' "$1" "$2" "${3-}" 2>/dev/null >"$termination"
    exit "${4:-1}"
}

own_variables() {
    export LEARNER_ID="$number" NODE_RANK="$index" RANK="$index" FABRIC_LEARNER="$told_marker/$number"
}

resolves() {
    if command -v getent >/dev/null 2>&1; then getent hosts "$1"; else nslookup "$1"; fi >/dev/null 2>&1
}

await_peers() {
    left=$told_gang_seconds
    peer=0
    while [ "$peer" -lt "$told_learners" ]; do
        if [ "$peer" = "$index" ] || resolves "$told_stem-$peer.$told_stem"; then
            peer=$((peer + 1))
        elif [ "$left" -le 0 ]; then
            fail "the other learners did not come within $told_gang_seconds s" S100 "" 75
        else
            sleep 1
            left=$((left - 1))
        fi
    done
}

await_code() {
    left=$told_code_seconds
    until [ -e "$journal/code.tar.gz" ] || [ -e "$journal/code.arrived" ]; do
        [ "$left" -gt 0 ] || fail "the code did not arrive within $told_code_seconds s" S301
        sleep 1
        left=$((left - 1))
    done
}

prepare() {
    trap 'exit 143' TERM
    mkdir -p "$folder" "$journal/home" /job/logs /job/model-code
    : >>"/job/$told_job"
    case $told_code in
    given)
        command -v tar >/dev/null 2>&1 || fail "the image has neither Python 3.8 nor tar to unpack the code" C104
        tar -C /job/model-code -xzf "$given/code.tar.gz" || fail "the code cannot be unpacked" S301
        ;;
    streamed)
        await_code
        # What has no tar got its files one by one.
        if [ -e "$journal/code.tar.gz" ]; then
            tar -C /job/model-code -xzf "$journal/code.tar.gz" || fail "the code cannot be unpacked" S301
            rm -f "$journal/code.tar.gz"
        fi
        ;;
    esac
    [ "$told_requirements" = no ] || fail "the image has no Python 3.8 or newer, and requirements need it" C205 \
        "install them by setup: with what the image has, or take another image"
    [ "$told_restores" = no ] || fail "to go on from what was made before needs Python 3.8 in the image" C104 \
        "use a claim or a storage class for results"
    [ "$told_stores" = no ] || fail "data stores need Python 3.8 in the image, which brings the data in" C104 \
        "take an image with Python, or leave the data to a volume"
    await_peers
}

# Prepare in the side-car, once: its outcome appears whole, and is {} or why it failed.
prepare_in_sidecar() {
    [ "$told_prepared_by" = journal ] && [ ! -e "$journal/prepared" ] || return 0
    termination=$journal/prepared.new
    (prepare) && echo '{}' >"$termination"
    mv "$termination" "$journal/prepared"
}

await_prepared() {
    [ "$told_prepared_by" = journal ] || return 0
    trap 'exit 143' TERM INT
    until [ -e "$journal/prepared" ]; do pause 0.1; done
    if ! grep -q '^{}' "$journal/prepared"; then
        cat "$journal/prepared" >/dev/termination-log 2>/dev/null
        exit 1
    fi
}

# Print what is new of a log; at is how far it was printed.
echo_new() {
    [ -r "$1" ] || return 0
    size=$(wc -c <"$1")
    if [ "$size" -gt "$at" ]; then
        tail -c "+$((at + 1))" "$1" | head -c $((size - at))
        at=$size
    fi
}

is_over() { grep -q '"phase": *"exited"' "$folder/state.json" 2>/dev/null; }

learner() {
    await_prepared
    own_variables
    exec 2>>"$folder/guard.log" # what this shell has to say is not the learner's output
    export -p >"$folder/env.sh"
    sed "s/$told_placeholder/$number/g" "$given/launch.sh" >"$folder/launch.sh"
    echo "launch_export() { . '$folder/env.sh'; }" >>"$folder/launch.sh"
    trap '[ -e "$folder/stop.json" ] || cp "$given/stop.json" "$folder/stop.json"' TERM INT
    at=0 agents=0 agent=
    log=output
    [ "$told_setup" = no ] || log=setup
    while :; do
        over=
        if ! { [ "$agent" ] && kill -0 "$agent" 2>/dev/null; }; then
            if is_over; then
                over=yes
            elif [ $agents -lt 4 ]; then
                agents=$((agents + 1))
                sh "$given/agent.sh" guard "$folder" >>"$folder/guard.log" 2>&1 </dev/null &
                agent=$!
            else
                fail "its agent was killed again and again" S202
            fi
        fi
        # One that a signal has stopped would not see that it is to stop.
        [ -z "$agent" ] || [ ! -e "$folder/stop.json" ] || kill -CONT "$agent" 2>/dev/null
        echo_new "$folder/$log.log"
        if [ $log = setup ] && [ -e "$folder/output.log" ]; then
            echo_new "$folder/setup.log"
            log=output at=0
        elif [ "$over" ]; then
            break
        else
            pause 0.2
        fi
    done
    head -c 4000 "$folder/state.json" >/dev/termination-log 2>/dev/null
    code=$(sed -n 's/.*"exit_code": *\([0-9][0-9]*\).*/\1/p' "$folder/state.json")
    signal=$(sed -n 's/.*"signal": *\([0-9][0-9]*\).*/\1/p' "$folder/state.json")
    [ "$signal" ] && code=$((128 + signal))
    exit "${code:-1}"
}

case $role in
prepare) prepare ;;
learner) learner ;;
journal)
    prepare_in_sidecar
    trap 'exit 0' TERM INT
    while :; do
        sleep 3600 &
        wait $!
    done
    ;;
exec)
    own_variables
    cd /job/model-code || exit 1
    exec "$@"
    ;;
*)
    echo "there is no Python 3.8 in this image" >&2
    exit 69
    ;;
esac
