# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# Sourced by test/run, bench/run and .ci/run: installs what they lack, where that can be done without asking.
#
#   need meson command -v meson     the Debian package meson is needed unless "command -v meson" succeeds
#   install_needed                  installs what is needed, and says what is still missing

needs=()

# need PACKAGE PROBE...
need() {
    needs+=("$*")
}

# The packages whose probe fails.
lacking() {
    local package probe
    for need in "${needs[@]}"; do
        read -r package probe <<<"$need"
        $probe >/dev/null 2>&1 </dev/null || printf '%s ' "$package"
    done
}

# A probe: whether meson is the one that meson.build asks for.
meson_is_recent() {
    [ "$(printf '%s\n' 1.0.0 "$(meson --version)" | sort -V | head -n 1)" = 1.0.0 ]
}

# Runs apt-get as root without asking anything, except that sudo asks for a password where a person can answer.
root_apt_get() {
    local sudo=()
    if [ "$(id -u)" != 0 ]; then
        sudo=(sudo -n)
        [ -n "${CI:-}" ] || [ ! -t 0 ] || sudo=(sudo)
    fi
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a \
        apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"
}

install_needed() {
    local package packages
    read -r -a packages <<<"$(lacking)"
    [ ${#packages[@]} -gt 0 ] || return 0

    if ! command -v apt-get >/dev/null; then
        echo "This is neither Debian nor Ubuntu: install the like of these packages by hand."
    elif [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        echo "Neither root nor sudo: cannot install packages."
    else
        echo "Installing ${packages[*]} ..."
        # One package that cannot be had must not cost the others.
        root_apt_get update >/dev/null
        root_apt_get install --no-install-recommends "${packages[@]}" >/dev/null ||
            for package in "${packages[@]}"; do
                root_apt_get install --no-install-recommends "$package" >/dev/null
            done
        hash -r
    fi

    read -r -a packages <<<"$(lacking)"
    [ ${#packages[@]} -eq 0 ] || echo "Still missing, and what needs it is left out: ${packages[*]}"
}
