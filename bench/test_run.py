#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests bench/run, test/run and scripts/packages.sh on machines that lack something: only the programs in one folder
are found, and some of them only note how they were called."""
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test/harness"))
import tap  # noqa: E402 (found in the folder above)

# What every machine has.
BASE = ("bash", "cat", "date", "dirname", "env", "grep", "head", "id", "ls", "mkdir", "mktemp", "realpath", "rm", "sed",
        "sh", "sleep", "sort", "tail", "test", "touch", "true", "uname")
PACKAGES = ("meson", "ninja-build", "gcc", "g++", "pkg-config", "libbenchmark-dev", "libsleef-dev", "gnuplot-nox")


class Machine:
    """A machine with few programs, and a copy of the scripts."""

    def __init__(self, folder, *programs):
        self.tree, self.bin, self.log = folder / "a tree", folder / "bin", folder / "log"
        self.bin.mkdir(parents=True)
        self.log.touch()
        for name in (*BASE, *programs):
            (self.bin / name).symlink_to(shutil.which(name))
        for name in ("bench", "scripts", "test"):
            shutil.copytree(ROOT / name, self.tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "src", self.tree / "src")
        self.environment = {"PATH": str(self.bin), "LOG": str(self.log)}

    def add(self, name, script):
        """Adds a program, which first notes how it was called."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>"$LOG"\n{script}\n', encoding="utf-8")
        path.chmod(0o755)

    def be_user(self, sudo=""):
        """Makes the user a common one; sudo is the script of that program, if there is one."""
        self.add("id", "echo 1000")
        if sudo:
            self.add("sudo", sudo)

    def calls(self, name):
        return [line for line in self.log.read_text(encoding="utf-8").splitlines() if line.split(" ")[0] == name]

    def run(self, script, *arguments, **more):
        done = subprocess.run([self.tree / script, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, env=self.environment, **more)
        return done.returncode, done.stdout


SUDO = '[ "$1" != -n ] || shift\nexec "$@"'
SUDO_WITH_PASSWORD = '[ "$1" = -n ] && exit 1\n[ "$1" != -p ] || shift 2\nexec "$@"'
SUDO_WITH_WRONG_PASSWORD = "exit 1"


def test_bare(folder):
    """Tests a machine with neither Python nor rights."""
    machine = Machine(folder)
    status, printed = machine.run("bench/run", "--help")
    tap.check(status == 0 and printed == (ROOT / "bench/help.txt").read_text(encoding="utf-8"),
              "--help without Python", printed)
    machine.be_user()
    machine.add("apt-get", "exit 1")
    status, printed = machine.run("bench/run")
    lines = printed.splitlines()
    command = next((line for line in lines if "apt-get install" in line), "")
    tap.check(status == 1 and set(PACKAGES) <= set(command.split()) and "python3" in command.split(),
              "without rights: the exact command, and the end", printed)
    tap.check("Nothing can be done without python3 meson" in lines[-1] and not machine.calls("apt-get")
              and "this user is not root" in lines[0],
              "it says why it installs nothing and what it cannot do without, and does not try", printed)
    tap.check(not (machine.tree / "build").exists(), "nothing was built")
    (machine.bin / "apt-get").unlink()
    status, printed = machine.run("bench/run")
    tap.check(status == 1 and "Missing: python3" in printed and "apt-get" not in printed,
              "neither Debian nor Ubuntu: what is missing", printed)
    status, printed = machine.run("test/run", "--quick")
    tap.check(status == 1 and "Nothing can be done without python3 meson" in printed, "test/run, too", printed)


def test_old_meson(folder):
    machine = Machine(folder)
    machine.add("meson", "echo 0.61.2")
    status, printed = machine.run("bench/run", "--no-install")
    tap.check(status == 1 and "This meson is 0.61.2, but 1.0.0 or later is needed" in printed, "an old meson", printed)


def test_quick(folder):
    machine = Machine(folder)
    machine.add("apt-get", "exit 1")
    machine.be_user()
    _, printed = machine.run("test/run", "--quick")
    tap.check(not {"clang", "cmake", "qemu-user", "gcc-aarch64-linux-gnu", "gnuplot-nox"} & set(printed.split()),
              "test/run --quick does not want what only the other runs need", printed)
    _, printed = machine.run("test/run")
    tap.check({"clang", "cmake", "qemu-user", "gcc-aarch64-linux-gnu"} <= set(printed.split()), "test/run does",
              printed)
    _, printed = machine.run("bench/run")
    tap.check(not {"clang", "cmake", "qemu-user", "gcc-aarch64-linux-gnu"} & set(printed.split()),
              "bench/run does not", printed)


def run_at_terminal(machine):
    """What bench/run prints where a person could answer."""
    parent, child = pty.openpty()
    with subprocess.Popen([machine.tree / "bench/run"], stdin=child, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env=machine.environment) as process:
        printed = process.stdout.read()
    os.close(parent)
    os.close(child)
    return printed


def test_sudo(folder):
    """Tests how sudo is called, and how often."""
    machine = Machine(folder)
    machine.be_user(SUDO_WITH_PASSWORD)
    machine.add("apt-get", "echo Err:1 no route; echo Reading lists; exit 100")
    status, printed = machine.run("bench/run")
    tap.check(status == 1 and machine.calls("sudo") == ["sudo -n true"] and not machine.calls("apt-get"),
              "no terminal, and sudo wants a password: no prompt", printed + str(machine.calls("sudo")))
    machine.log.write_text("", encoding="utf-8")
    status, printed = machine.run("bench/run", "--no-install")
    tap.check(status == 1 and not machine.calls("sudo") and "apt-get install" in printed, "--no-install", printed)

    printed = run_at_terminal(machine)
    calls = machine.calls("sudo")
    tap.check(len(calls) == 2 and calls[0].startswith("sudo -p ") and calls[0].endswith(" true"),
              "at a terminal sudo asks at once, and is called once more, whatever fails", printed + str(calls))
    tap.check(printed.count("Err:1 no route") == 1 and "Reading lists" not in printed,
              "what went wrong, and not what else apt-get said", printed)
    tap.check(len(machine.calls("apt-get")) > len(PACKAGES), "each package is tried by itself if not all can be had",
              str(machine.calls("apt-get")))
    machine.log.write_text("", encoding="utf-8")
    machine.be_user(SUDO_WITH_WRONG_PASSWORD)
    printed = run_at_terminal(machine)
    tap.check(len(machine.calls("sudo")) == 1 and not machine.calls("apt-get") and "apt-get install" in printed,
              "a wrong password: the exact command, and the end", printed + str(machine.calls("sudo")))
    machine.log.write_text("", encoding="utf-8")
    machine.be_user(SUDO)
    machine.add("apt-get", "exit 0")
    status, printed = machine.run("bench/run")
    calls = machine.calls("apt-get")
    tap.check(len(calls) == 2 and " update" in calls[0] and " meson " in calls[1],
              "without a password it installs all at once", printed + str(calls))


def buildable(folder):
    """A machine where everything is there, and builds take as long as the test wants."""
    machine = Machine(folder, "python3", "gcc", "g++")
    for name in ("ninja", "gnuplot"):
        machine.add(name, "exit 0")
    # Refuses a folder that an interrupted run has left, as meson does.
    machine.add("meson", '[ "$1" != --version ] || { echo 1.2.0; exit; }\n[ -z "$(ls -d "$2"/meson-*)" ]')
    machine.add("pkg-config", "exit 0")
    machine.environment["PYTHONPATH"] = ":".join(sys.path)
    (machine.tree / "bench/measure.py").write_text(
        "import os, sys\nif '--check-arguments' not in sys.argv: print('out:', os.path.realpath(sys.argv[-1]))\n",
        encoding="utf-8")
    return machine


def test_build(folder):
    machine = buildable(folder)
    status, printed = machine.run("bench/run", "--no-install", "--out", "there", cwd=folder)
    tap.check(status == 0 and f"out: {os.path.realpath(folder / 'there')}" in printed, "a relative DIR is the caller's",
              printed)
    tap.check((machine.tree / "build/bench").is_dir(), "what is built lies in the tree all the same")
    (machine.tree / "build/bench/meson-private").mkdir()
    status, printed = machine.run("bench/run", "--no-install")
    tap.check(status == 0, "a folder that an interrupted run has left is made anew", printed)
    machine.add("ninja", "echo '[3/40] Compiling'; sleep 11; echo '[40/40] Linking'")
    status, printed = machine.run("bench/run", "--no-install")
    tap.check(status == 0 and "Building: 10 s, [3/40]\n" in printed, "a long build shows where it is", printed)
    machine.add("ninja", "echo 'no such header'; exit 1")
    status, printed = machine.run("bench/run", "--no-install")
    tap.check(status == 1 and "no such header" in printed and "cannot be built" in printed, "a build that fails",
              printed)


def interrupt(machine, ninja, send):
    """Interrupts a build whose ninja is a script. Reports whether all ends in time: the script writes the processes to
    watch."""
    machine.add("ninja", ninja)
    file = machine.log.with_name("processes")
    file.unlink(missing_ok=True)
    with subprocess.Popen([machine.tree / "bench/run", "--no-install"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=machine.environment,
                          start_new_session=True) as process:
        while not (file.exists() and file.read_text(encoding="utf-8").endswith("\n")) and process.poll() is None:
            time.sleep(0.05)
        begin = time.monotonic()
        if process.poll() is None:
            send(process.pid, signal.SIGINT)
        process.wait()
        seconds = time.monotonic() - begin
        name = f"{send.__name__} while it builds"
        # A second where the machine is idle. Other work may take the processors.
        tap.check(process.returncode == 130 and seconds < 10, name, f"{process.returncode} after {seconds} s")
        if not tap.check(file.exists(), f"{name}: the build had begun"):
            return
        running = [pathlib.Path("/proc", number) for number in file.read_text(encoding="utf-8").split()]
        while any(path.exists() for path in running) and time.monotonic() < begin + 5:
            time.sleep(0.05)
        alive = [int(path.name) for path in running if path.exists()]
        tap.check(not alive, f"{name}: it ends the build, too", f"{len(alive)} of {len(running)} processes go on")
        for number in alive:
            os.kill(number, signal.SIGKILL)


def test_interrupt(folder):
    machine = buildable(folder)
    # As sudo's command can, this one heeds nothing but Ctrl-C.
    interrupt(machine, "trap '' TERM\ntrap 'exit 1' INT\nsleep 20 &\necho $$ >\"${LOG%log}processes\"\nwait", os.killpg)
    # SIGINT reaches bench/run alone: neither its child, nor that one's children.
    interrupt(machine, "(sleep 20 & echo $! $BASHPID; wait) >\"${LOG%log}processes\" & wait", os.kill)


with tempfile.TemporaryDirectory() as temporary:
    for number, test in enumerate((test_bare, test_old_meson, test_quick, test_sudo, test_build, test_interrupt)):
        test(pathlib.Path(temporary, str(number)))
tap.done()
