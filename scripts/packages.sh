# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# Sourced by test/run, bench/run and .ci/run: installs what they lack, where that can be done without asking.
#
#   need meson command -v meson       the Debian package meson is needed unless "command -v meson" succeeds; without it
#                                     nothing can be done
#   want gnuplot-nox command -v gnuplot    the same, but without it only a part is left out
#   install_packages                  installs what is needed and wanted; ends the program if what is needed is missing
#
# no_install=1 installs nothing.

# shellcheck source=scripts/progress.sh
. "$(dirname "${BASH_SOURCE[0]}")/progress.sh"

needs=()
wants=()

need() {
    needs+=("$*")
}

want() {
    wants+=("$*")
}

# lacking NEED... prints the packages whose probe fails.
lacking() {
    local need package probe
    for need in "$@"; do
        read -r package probe <<<"$need"
        $probe >/dev/null 2>&1 </dev/null || printf '%s ' "$package"
    done
}

# A probe: whether meson is the one that meson.build asks for.
meson_is_recent() {
    [ "$(printf '%s\n' 1.0.0 "$(meson --version)" | sort -V | head -n 1)" = 1.0.0 ]
}

# A probe: whether the compiler finds the C library's headers, which not every system has in /usr/include.
headers_are_found() {
    gcc -E -x c -include stdio.h /dev/null
}

# python_with MODULE... prints a Python that can import these modules: that of the system gets Debian's packages.
python_with() {
    local python
    for python in python3 /usr/bin/python3; do
        if command -v "$python" >/dev/null && "$python" -c "$(printf 'import %s\n' "$@")" 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}

# Sets the array as_root to the words before a command that root must run. Fails if that cannot be. sudo asks for a
# password only where a person can answer, and at once: later a line of progress would overwrite the question.
find_root() {
    as_root=()
    [ "$(id -u)" != 0 ] || return 0
    command -v sudo >/dev/null || return 1
    as_root=(sudo)
    if [ -n "${CI:-}" ] || [ ! -t 0 ]; then
        as_root+=(-n)
        "${as_root[@]}" true 2>/dev/null
    else
        "${as_root[@]}" -p 'To install packages sudo needs the password of %p: ' true
    fi
}

# All in one shell, so that sudo asks once. One package that cannot be had must not cost the others.
# shellcheck disable=SC2016
installation='
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a
get() { apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"; }
get update
get install --no-install-recommends "$@" && exit
for package in "$@"; do
    get install --no-install-recommends "$package"
done'

install_packages() {
    local missing log as_root
    read -r -a missing <<<"$(lacking "${needs[@]}" "${wants[@]}")"
    [ ${#missing[@]} -gt 0 ] || return 0

    if [ "${no_install:-0}" != 0 ] || ! command -v apt-get >/dev/null; then
        : # What is missing is only named.
    elif ! find_root; then
        echo "Nothing is installed: this user is not root, and cannot become root by sudo."
    else
        echo "Installing ${missing[*]}"
        log=$(mktemp)
        if ! with_progress "Installing" "$log" "${as_root[@]}" bash -c "$installation" bash "${missing[@]}"; then
            echo "Installing failed. Of what apt-get said:"
            grep -E '^(Err|W|E):' "$log" | sort -u | head -n 10
        fi
        rm -f "$log"
        hash -r
        read -r -a missing <<<"$(lacking "${needs[@]}" "${wants[@]}")"
        [ ${#missing[@]} -gt 0 ] || return 0
    fi

    echo "Missing: ${missing[*]}"
    if command -v apt-get >/dev/null; then
        echo "Root can install them by:"
        echo "    apt-get update"
        echo "    apt-get install --no-install-recommends ${missing[*]}"
    else
        echo "These are the names of packages in Debian and Ubuntu: install the like of them."
    fi
    read -r -a missing <<<"$(lacking "${needs[@]}")"
    if command -v meson >/dev/null && ! meson_is_recent; then
        echo "This meson is $(meson --version), but 1.0.0 or later is needed: pipx install meson gets one."
    fi
    if [ ${#missing[@]} -gt 0 ]; then
        echo "Nothing can be done without ${missing[*]}."
        exit 1
    fi
    echo "What needs them is left out."
}
