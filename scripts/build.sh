# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# Sourced by scripts that build, after scripts/packages.sh.

# build_in FOLDER WHAT MESON-SETUP-ARGUMENT...
# Sets a build up and builds it. The logs are FOLDER/setup.log and FOLDER/build.log; if it fails, shows the end of one.
build_in() {
    local folder=$1 what=$2
    shift 2
    # Whatever is wrong with a folder, like another version of meson or an interrupted one, a new folder has none of it.
    if [ ! -f "$folder/build.ninja" ] ||
        ! with_progress "$what: setting up" "$folder/setup.log" meson setup --reconfigure "$folder" "$@"; then
        rm -rf "$folder"
        mkdir -p "$folder" || return
        if ! with_progress "$what: setting up" "$folder/setup.log" meson setup "$folder" "$@"; then
            tail -n 40 "$folder/setup.log"
            return 1
        fi
    fi
    if ! with_progress "$what" "$folder/build.log" ninja -C "$folder"; then
        tail -n 80 "$folder/build.log"
        return 1
    fi
}
