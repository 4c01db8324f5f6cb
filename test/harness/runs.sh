# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# Sourced by test/run and .ci/run after scripts/packages.sh and scripts/build.sh: builds, runs tests, and keeps the
# results for test/harness/summarize.py in the file $results, one line each: the run's name, "tests" and the log of its
# tests, or an outcome and a remark.

: "${results:?is set by the script that sources this}"

# record RUN OUTCOME [REMARK]; OUTCOME is passed, failed, skipped or tests
record() {
    local remark=${3:-}
    printf '%s\t%s\t%s\n' "$1" "$2" "${remark//$'\n'/ }" >>"$results"
    case $2 in
    failed) echo "FAILED: $1: ${3:-}" ;;
    skipped) echo "Skipped: $1: ${3:-}" ;;
    esac
}

# build RUN FOLDER MESON-SETUP-ARGUMENT...
build() {
    local run=$1 folder=$2
    shift 2
    echo "==== $run: building"
    if ! build_in "$folder" "$run" "$@"; then
        record "$run" failed "the build, see $folder/setup.log and $folder/build.log"
        return 1
    fi
}

# run_tests RUN FOLDER MESON-TEST-ARGUMENT...
run_tests() {
    local run=$1 folder=$2 logs copy
    shift 2
    rm -f "$folder"/meson-logs/testlog*.json
    echo "==== $run: testing"
    meson test -C "$folder" --no-rebuild --print-errorlogs "$@"
    logs=("$folder"/meson-logs/testlog*.json)
    if [ -f "${logs[0]}" ]; then
        copy=$results.$(($(wc -l <"$results"))).json # on some systems wc pads its number with spaces
        cp "${logs[0]}" "$copy"
        record "$run" tests "$copy"
    else
        record "$run" failed "meson test wrote no log"
    fi
}
