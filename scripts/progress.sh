# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# Sourced by scripts that run long commands.

# Prints "PROCESS PARENT" for each process of this machine.
processes() {
    local file line parent
    if [ ! -f /proc/$$/stat ]; then
        ps -A -o pid= -o ppid=
        return
    fi
    for file in /proc/[0-9]*/stat; do
        { read -r line <"$file"; } 2>/dev/null || continue # it has just ended
        file=${file#/proc/}
        read -r _ parent _ <<<"${line##*)}" # in parentheses stands its name, in which there may be anything
        echo "${file%/stat} $parent"
    done
}

# end_tree PROCESS
# Ends a process and all that it has started. They are stopped first, so that none of them starts another one unseen.
end_tree() {
    local tree=" $1 " stopped='' process parent
    while [ "$tree" != "$stopped" ]; do
        stopped=$tree
        # shellcheck disable=SC2086
        kill -STOP $tree 2>/dev/null
        while read -r process parent; do
            [[ $tree == *" $process "* || $tree != *" $parent "* ]] || tree+="$process "
        done < <(processes)
    done
    # shellcheck disable=SC2086
    kill -TERM $tree 2>/dev/null
    # shellcheck disable=SC2086
    kill -CONT $tree 2>/dev/null
}

# with_progress WHAT LOG COMMAND...
# Runs a command whose output goes to the file LOG. Shows a line every ten seconds, with ninja's count if there is one;
# on a terminal the line changes. Ctrl-C, or SIGINT to this program alone, ends the command with all that it has
# started, and the program, with exit status 130.
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
    trap "end_tree $job; echo 'Interrupted.'; exit 130" INT
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
