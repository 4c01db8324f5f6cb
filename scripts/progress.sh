# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# Sourced by scripts that run long commands.

# with_progress WHAT LOG COMMAND...
# Runs a command whose output goes to the file LOG. Shows a line every ten seconds, with ninja's count if there is one;
# on a terminal the line changes. Ctrl-C ends the command and the program, with exit status 130.
with_progress() {
    local what=$1 log=$2 begin=$SECONDS shown=$SECONDS line='%s\n' clear='' count job status
    shift 2
    if [ -t 1 ]; then
        clear='\r\033[K'
        line="$clear%s"
    fi
    # In brackets, because bash has a plain command in the background ignore Ctrl-C.
    ("$@") >"$log" 2>&1 &
    job=$!
    # shellcheck disable=SC2064
    trap "kill -TERM $job 2>/dev/null; echo 'Interrupted.'; exit 130" INT
    while kill -0 "$job" 2>/dev/null; do
        sleep 0.2
        if [ $((SECONDS - shown)) -ge 10 ]; then
            shown=$SECONDS
            count=$(grep -o '^\[[0-9]*/[0-9]*\]' "$log" | tail -n 1)
            # shellcheck disable=SC2059
            printf "$line" "$what: $((SECONDS - begin)) s${count:+, $count}"
        fi
    done
    wait "$job"
    status=$?
    trap 'exit 130' INT
    # shellcheck disable=SC2059
    printf "$clear"
    return $status
}
