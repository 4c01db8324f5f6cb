#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Measures every norm on this machine and reports how fast each is.

Runs dynnorm-bench in rounds, each over all selected cases. So the repetitions of a case lie far apart in time, but a
case and its limit close together. Then merges the results of the rounds and writes the report.
"""
import argparse
import csv
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

import compare
import operations
import pages
import probes
import report
import results

HERE = pathlib.Path(__file__).resolve().parent
USAGE_ERROR = 2
INTERRUPTED = 130

# For each set, how many times each case is measured, and for how many seconds at least each time.
ROUNDS = {"quick": 4, "standard": 5, "full": 5}
MIN_TIME = {"quick": 0.01, "standard": 0.008, "full": 0.02}


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="bench/run", formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        description="Measures every norm on this machine, on every instruction set that it can run, and compares them "
                    "with\nthe best that the machine can do and with other libraries that are installed. Takes three "
                    "to four minutes.",
        epilog="A case has a name like rmsnorm_forward/f32/avx2/portable/tokens:64/channels:4096. Options that begin\n"
               "with --benchmark_ are passed to Google Benchmark: --benchmark_filter=REGEX,\n"
               "--benchmark_min_time=SECONDS, --benchmark_list_tests. --benchmark_repetitions=N is the same as\n"
               "--rounds N.\n\n"
               "bench/report.py DIR writes the report of DIR/results.json again. bench/compare.py DIR OTHER compares\n"
               "two runs.")
    sets = parser.add_mutually_exclusive_group()
    sets.add_argument("--quick", dest="set", action="store_const", const="quick",
                      help="measure only the main shapes; takes one to two minutes")
    sets.add_argument("--full", dest="set", action="store_const", const="full",
                      help="measure everything, at more shapes; takes about twenty minutes")
    for name, text in (("calls", "only calls with one token, hot and cold (every run measures them, too)"),
                       ("cliffs", "only how much slower special data are: saturated, 0, denormal, huge, NaN"),
                       ("streaming", "only where it pays to store outputs past the caches")):
        sets.add_argument(f"--{name}", dest="probe", action="store_const", const=name,
                          help=f"measure {text}; takes seconds")
    parser.add_argument("--against", metavar="DIR",
                        help="say how well the run agrees with an earlier one, whose results are in this folder")
    parser.add_argument("--out", metavar="DIR", default=HERE.parent / "bench-results",
                        help="write the results to this folder (bench-results, beside bench)")
    parser.add_argument("--isa", action="append", default=[], metavar="NAME,...",
                        help="measure only these instruction sets: scalar, avx2, avx512, neon; or peer, for others")
    parser.add_argument("--op", action="append", default=[], metavar="NAME,...",
                        help=f"measure only these: {', '.join(operations.OPERATIONS)}; or one pass, as in dyt_forward")
    parser.add_argument("--shape", action="append", default=[], metavar="TOKENSxCHANNELS,...",
                        help="measure only at these shapes, which can be any")
    parser.add_argument("--threads", type=int, default=1, metavar="N",
                        help="split the rows over N threads, each pinned to a core (1)")
    parser.add_argument("--rounds", type=int, metavar="N", help="measure each case N times, in N rounds")
    parser.add_argument("--program", default=HERE.parent / "build/bench/bench/dynnorm-bench", help=argparse.SUPPRESS)
    parser.add_argument("--check-arguments", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(set="standard", probe=None)
    options, rest = parser.parse_known_args(arguments)

    options.list = False
    options.passed = []
    for argument in rest:
        name, _, value = argument.partition("=")
        if name == "--benchmark_repetitions":
            if not value.isdigit():
                parser.error(f"not a number: {argument}")
            options.rounds = int(value)
        elif name == "--benchmark_list_tests":
            options.list = value.lower() not in ("0", "f", "n", "false", "no", "off")  # as Google Benchmark reads it
        elif name.startswith("--benchmark_out") or name in ("--benchmark_format", "--benchmark_color"):
            parser.error(f"{name} is this program's own to set; --out DIR says where the results go")
        elif name.startswith("--benchmark_"):
            options.passed.append(argument)
        else:
            parser.error(f"unrecognized argument: {argument}")
    if options.rounds is None:
        options.rounds = ROUNDS[options.set]
    if options.rounds < 1:
        parser.error("there must be at least one round")
    if options.threads < 1:
        parser.error("there must be at least one thread")
    if options.probe and (options.op or options.shape or options.threads > 1 or options.passed or options.list
                          or options.against or len(options.isa) > 1):
        parser.error(f"--{options.probe} goes with --out and one --isa only")
    options.filtered = any(argument.startswith("--benchmark_filter") for argument in options.passed)
    if not any(argument.startswith("--benchmark_min_time") for argument in options.passed):
        options.passed.append(f"--benchmark_min_time={MIN_TIME[options.set]}")
    return options


def command(options):
    lists = [f"--{name}={','.join(getattr(options, name))}" for name in ("isa", "op", "shape")
             if getattr(options, name)]
    return [str(options.program), f"--set={options.set}", f"--threads={options.threads}", *lists, *options.passed]


def list_cases(options):
    """The names of the cases that will be measured. Ends the program if dynnorm-bench does not accept the options, with
    its message."""
    try:
        done = subprocess.run([*command(options), "--benchmark_list_tests"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        sys.exit(f"{options.program}: {error.strerror}. bench/run builds it.")
    names = [results.plain_name(line) for line in done.stdout.split()]
    if done.returncode == USAGE_ERROR or not all(results.parse(name) for name in names):
        sys.stderr.write(done.stderr or done.stdout)
        sys.exit(USAGE_ERROR)
    if not any(results.parse(name).isa for name in names):
        sys.stderr.write("bench/run: these options select no case\n")
        sys.exit(USAGE_ERROR)
    return names


def min_time(options):
    """The least time of a measurement in seconds. If the options give a number of iterations, that of the set."""
    given = [argument.partition("=")[2].rstrip("s") for argument in options.passed
             if argument.startswith("--benchmark_min_time=")]
    try:
        return float(given[-1])
    except (ValueError, IndexError):
        return MIN_TIME[options.set]


class PyTorch:
    """PyTorch, the peer that runs in a process of its own, with any Python on this machine that has it."""

    def __init__(self, options, names):
        # PyTorch is measured at the same cases as the plain loops, the peer that computes all of these norms.
        self.names = [name.replace("/peer/loops/", "/peer/pytorch/") for name in names if "/peer/loops/" in name]
        self.library = pathlib.Path(options.program).resolve().parent.parent / "libdynnorm.so"
        self.min_time = str(min_time(options))
        if not self.names:
            self.description = "absent: the selection has none of the others"
            return
        self.description = "absent: no Python here can import torch"
        for self.python in (sys.executable, "/usr/bin/python3"):
            try:
                done = subprocess.run([self.python, "-c", "import torch; print(torch.__version__)"],
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
            except OSError:
                continue
            if done.returncode == 0:
                version = done.stdout.strip()
                self.description = f"present: PyTorch {version}, eager, in one thread, in a process of its own"
                break
        if self.description.startswith("absent"):
            self.names = []
        elif not self.library.exists():
            self.names = []
            self.description = f"absent: {self.library.name}, to compare its results with, was not built"

    def run_round(self, progress, folder, context):
        """The results of its cases in Google Benchmark's format, or [] if it fails."""
        path = pathlib.Path(folder, "pytorch.json")
        path.unlink(missing_ok=True)
        if not self.names:
            return []
        # PyTorch allocates its results in each call. Without these, large ones would come from the system each time,
        # page by page, which a program can avoid, too.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MALLOC_MMAP_MAX_": "0",
                       "MALLOC_TRIM_THRESHOLD_": "-1"}
        with subprocess.Popen([self.python, HERE / "peer_pytorch.py", self.library, self.min_time,
                               context["peer tolerance"], path],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=environment) as process:
            try:
                process.stdin.write("\n".join(self.names))
                process.stdin.close()
                for line in process.stdout:
                    progress.advance(line.strip())
            except KeyboardInterrupt:
                process.terminate()
                raise
            errors = process.stderr.read()
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
        self.description = f"absent: it failed: {(errors.strip().splitlines() or [''])[-1]}"
        return []


class Progress:
    """Shows the progress of a run: on a terminal as one line that changes, elsewhere as a line now and then."""

    def __init__(self, names, rounds, out=sys.stdout):
        self.names, self.rounds, self.out = names, rounds, out
        self.terminal = out.isatty()
        self.start = self.last = time.monotonic()
        self.durations = {}  # how long each case took last, the best guess for the next round
        self.done = 0
        self.width = 0
        self.next_line = 0.1

    def fraction(self):
        """How much is done, by time. In the first round, which shows how long each case takes, by number of cases."""
        whole = self.rounds * len(self.names)
        if self.done < len(self.names):
            return self.done / whole
        one_round = sum(self.durations.get(name, 0) for name in self.names)
        begun = sum(self.durations.get(name, 0) for name in self.names[:self.done % len(self.names)])
        return (self.done // len(self.names) * one_round + begun) / (self.rounds * one_round)

    def advance(self, name):
        now = time.monotonic()
        self.durations[name] = now - self.last
        self.last = now
        self.done += 1
        fraction = self.fraction()
        left = (now - self.start) * (1 - fraction) / fraction
        current = self.done // len(self.names) + 1
        following = self.names[self.done % len(self.names)] if current <= self.rounds else ""
        line = f"{fraction:4.0%}  {left / 60:2.0f}:{left % 60:02.0f} left  round {min(current, self.rounds)} of " \
               f"{self.rounds}  {following}"
        if self.terminal:
            line = line[:os.get_terminal_size(self.out.fileno()).columns - 1]
            self.out.write("\r" + line.ljust(self.width))
            self.width = len(line)
            self.out.flush()
        elif fraction >= self.next_line or self.done == self.rounds * len(self.names):
            self.next_line = fraction + 0.1
            print(line, file=self.out, flush=True)

    def close(self):
        if self.terminal:
            self.out.write("\r" + " " * self.width + "\r")
            self.out.flush()


def run_round(options, progress, folder, index):
    """Runs dynnorm-bench once. Returns its results in Google Benchmark's format, also those of cases that failed. If
    dynnorm-bench itself fails, ends the program."""
    path = pathlib.Path(folder, f"round-{index}.json")
    log = pathlib.Path(folder, "errors.txt")
    with open(log, "w", encoding="utf-8") as errors, \
            subprocess.Popen([*command(options), f"--benchmark_out={path}", "--benchmark_out_format=json",
                              "--benchmark_color=false"], stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        expected = set(progress.names)
        try:
            for line in process.stdout:
                name = results.plain_name(line.split(" ", 1)[0].strip())
                if name in expected:
                    progress.advance(name)
        except KeyboardInterrupt:
            process.terminate()
            raise
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        progress.close()
        sys.stderr.write(log.read_text(encoding="utf-8"))
        sys.exit(f"dynnorm-bench failed, exit status {process.returncode}")


def first_line(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8").strip().splitlines()[0]
    except (OSError, IndexError):
        return ""


def cpu_name():
    """The name of the first processor."""
    fields = {}
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if not line.strip():
                break
            key, _, value = line.partition(":")
            fields[key.strip()] = value.strip()
    except OSError:
        pass
    said = [fields["model name"]] if "model name" in fields else []
    said += [f"{short} {fields[key]}" for key, short in (("cpu family", "family"), ("model", "model"),
                                                         ("stepping", "stepping"), ("CPU implementer", "implementer"),
                                                         ("CPU part", "part")) if key in fields]
    return ", ".join(said) or platform.machine()


def machine_context(options):
    """Facts about this machine and this run that Google Benchmark does not report."""
    governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {"cpu": cpu_name(), "governor": governor or "not readable here", "set": options.set,
            "options": " ".join(options.passed)}


def make_folder(options):
    """The folder for the results, or None, after a message, if it cannot be made."""
    folder = pathlib.Path(options.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.stderr.write(f"bench/run: --out {folder}: {error.strerror}\n")
        return None
    return folder


def probe_program(options):
    return pathlib.Path(options.program).with_name("dynnorm-probe")


def run_probe(options, name, isa):
    """What dynnorm-probe prints for a name of PROBES, on an instruction set or, without one, on the best. If it fails,
    ends the program."""
    try:
        return probes.run(probe_program(options), name, isa)
    except (OSError, RuntimeError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(USAGE_ERROR)


def measure_probe(options):
    """Measures what dynnorm-probe measures, shows it, and writes it to a file."""
    records = run_probe(options, options.probe, *(options.isa or [None]))
    folder = make_folder(options)
    if not folder:
        return USAGE_ERROR
    (folder / f"{options.probe}.json").write_text(json.dumps(records, indent=1), encoding="utf-8")
    print(pages.markdown(probes.PROBES[options.probe](records)))
    return int(options.probe == "cliffs" and bool(probes.too_slow(records)))


def one_token(options):
    """The records of single calls with one token, if the selection does not leave them out. Only a program that
    --program names may have no dynnorm-probe beside it."""
    isas = [isa for isa in ",".join(options.isa).split(",") if isa != "peer"]
    if options.threads > 1 or options.op or options.shape or options.filtered or not isas:
        return []
    if not probe_program(options).exists():
        return []
    return run_probe(options, "calls", isas[0] or None)


def measure(options):
    names = list_cases(options)
    pytorch = PyTorch(options, names)
    names += pytorch.names
    if options.list:
        print("\n".join(names))
        return 0
    folder = make_folder(options)
    if not folder:
        return USAGE_ERROR
    earlier = compare.read(options.against) if options.against else None
    print(f"Measuring {len(names)} cases in {options.rounds} rounds.", flush=True)
    progress = Progress(names, options.rounds)
    rounds, interrupted, calls = [], False, []
    with tempfile.TemporaryDirectory() as temporary:
        try:
            calls = one_token(options)
            for index in range(options.rounds):
                one = run_round(options, progress, temporary, index)
                one["benchmarks"] += pytorch.run_round(progress, temporary, one["context"])
                rounds.append(one)
        except KeyboardInterrupt:
            interrupted = True
        progress.close()
    if not rounds:
        return INTERRUPTED
    if interrupted:
        print(f"Interrupted: the report is of {len(rounds)} rounds.")

    merged = results.merge(rounds, {**machine_context(options), results.PEER + "pytorch": pytorch.description})
    merged["one_token"] = calls
    with open(folder / "results.json", "w", encoding="utf-8") as file:
        json.dump(merged, file, indent=1)
    found = results.Results(merged)
    with open(folder / "results.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(results.csv_rows(found))
    print(report.write(found, folder))
    if earlier:
        print("\n".join(pages.wrapped(compare.sentences(found, earlier, f"this run and that of {options.against}"))))
    failures = [f"FAILED: {case.operation}_{case.direction} ({case.isa}): {why}" for case, why in found.errors.items()
                if not results.is_peer(case)]
    print("\n".join(failures), end="\n" if failures else "")
    return INTERRUPTED if interrupted else int(bool(failures))


def main(arguments):
    options = parse_arguments(arguments)
    try:
        return 0 if options.check_arguments else measure_probe(options) if options.probe else measure(options)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
