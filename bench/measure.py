#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Measures every norm on this machine and reports how fast each is.

Runs dynnorm-bench in rounds, each over all selected cases. So the repetitions of a case lie far apart in time, but a
case and its limit close together. Then merges the results of the rounds and writes the report.
"""
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)  # until main() can handle Ctrl-C, it ends this silently
import csv  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import os  # noqa: E402
import pathlib  # noqa: E402
import platform  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402

import arguments  # noqa: E402
import compare  # noqa: E402
import probes  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402
import tables  # noqa: E402
from arguments import MIN_TIME, USAGE_ERROR  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
INTERRUPTED = 130
# PyTorch gets no larger tensors where the options name no shape.
MOST_ELEMENTS = 1 << 26


def command(options):
    lists = [f"--{name}={','.join(getattr(options, name))}" for name in ("isa", "op", "shape")
             if getattr(options, name)]
    if options.engines:
        lists.append(f"--engines={','.join(options.engines)}")
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
        sys.stderr.write((done.stderr or "") + "bench/run: these options select no case\n")
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
        # Of float16 there are no loops. Far beyond the caches PyTorch's temporaries would take most of the memory.
        self.names += [name.replace("/bf16/", "/f16/") for name in self.names if "/bf16/" in name]
        if not options.shape:
            self.names = [name for name in self.names
                          if math.prod(results.shape_of(results.parse(name))) <= MOST_ELEMENTS]
        self.library = pathlib.Path(options.program).resolve().parent.parent / "libdynnorm.so"
        self.min_time = str(min_time(options))
        if not self.names:
            self.description = "absent: the selection has none of the others"
            return
        self.description = "absent: no Python here can import torch"
        for self.python in (sys.executable, "python3", "/usr/bin/python3"):
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
        tolerances = [f"{type_}={context[key]}" for type_ in results.BYTES
                      if (key := "peer tolerance" + ("" if type_ == "f32" else f", {type_}")) in context]
        with subprocess.Popen([self.python, HERE / "peer_pytorch.py", self.library, self.min_time,
                               ",".join(tolerances), path],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=environment) as process:
            try:
                process.stdin.write("\n".join(self.names))
                process.stdin.close()
                for line in process.stdout:
                    progress.advance(line.strip())
            except KeyboardInterrupt:
                process.kill()
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
        minutes, seconds = divmod(round(left), 60)
        line = f"{fraction:4.0%}  {minutes:2}:{seconds:02} left  round {min(current, self.rounds)} of " \
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


def read_round(path):
    """The results that dynnorm-bench has written, or None. If it was interrupted, its list has no end yet."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    for ending in ("", "]}"):
        try:
            return json.loads(text.rstrip().rstrip(",") + ending)
        except ValueError:
            pass
    return None


def run_round(options, progress, folder, rounds):
    """Runs dynnorm-bench once, and adds its results to the rounds, in Google Benchmark's format: also those of cases
    that failed, and, if it is interrupted, what it had measured. If dynnorm-bench itself fails, ends the program."""
    path = pathlib.Path(folder, f"round-{len(rounds)}.json")
    log = pathlib.Path(folder, "errors.txt")
    try:
        with open(log, "w", encoding="utf-8") as errors, \
                subprocess.Popen([*command(options), f"--benchmark_out={path}", "--benchmark_out_format=json",
                                  "--benchmark_color=false"], stdout=subprocess.PIPE, stderr=errors,
                                 text=True) as process:
            expected = set(progress.names)
            try:
                for line in process.stdout:
                    name = results.plain_name(line.split(" ", 1)[0].strip())
                    if name in expected:
                        progress.advance(name)
            except KeyboardInterrupt:
                process.kill()
                raise
    finally:
        one = read_round(path)
        if one:
            rounds.append(one)
    if not one:
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
    sets = [*([] if options.set == "none" else [options.set]), *options.engines]
    return {"cpu": cpu_name(), "governor": governor or "not readable here", "set": ", ".join(sets),
            "options": " ".join(options.passed), **load_before_build()}


def load_before_build():
    """That which bench/run has seen. Google Benchmark sees what the build has left."""
    numbers = os.environ.get("DYNNORM_LOAD_AT_START", "").split()
    try:
        return {"load_avg": [float(number) for number in numbers]} if numbers else {}
    except ValueError:
        return {}


def keep_earlier(path):
    """Moves a file that is to be written out of the way, to a name with "previous". What has that name already gets one
    with the time of its last change. Returns the new path, or None if there is no such file."""
    if not path.exists():
        return None
    previous = path.with_name(f"{path.stem}.previous{path.suffix}")
    if previous.exists():
        changed = time.localtime(previous.stat().st_mtime)
        dated = path.with_name(f"{path.stem}.{time.strftime('%Y-%m-%d-%H%M%S', changed)}{path.suffix}")
        while dated.exists():
            dated = dated.with_name(f"{dated.stem}+{path.suffix}")
        previous.rename(dated)
    return path.rename(previous)


def folder_for_results(options):
    """The folder of --out. It could be written to when the run began; if that has changed, another one, so that what
    was measured is not lost."""
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=options.out):
            return options.out
    except OSError as error:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-results-"))
        print(f"{options.out}: {error.strerror}. The results are in {folder}.")
        return folder


def shown(path):
    """A path as seen from the current folder, if that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def probe_program(options):
    program = pathlib.Path(options.program)
    return program.with_name("dynnorm-probe" + program.suffix)


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
    print("Measuring, which takes up to a minute.", flush=True)
    records = run_probe(options, options.probe, *(options.isa or [None]))
    path = folder_for_results(options) / f"{options.probe}.json"
    previous = keep_earlier(path)
    path.write_text(json.dumps(records, indent=1), encoding="utf-8")
    print("\n\n".join(map(tables.markdown, probes.PROBES[options.probe](records))))
    print(f"\nThese figures: {shown(path)}" + (f"; the earlier ones: {previous.name}" if previous else ""))
    return int(options.probe == "cliffs" and bool(probes.too_slow(records)))


def one_token(options):
    """The records of single calls with one token, if the selection does not leave them out. Only a program that
    --program names may have no dynnorm-probe beside it."""
    selected = arguments.words(options.isa)
    isas = [isa for isa in arguments.valid_isas() if isa in selected and isa != "peer"]  # the best comes first
    if options.set == "none" or options.threads > 1 or options.op or options.shape or options.filtered:
        return []
    if options.isa and not isas:
        return []
    if not probe_program(options).exists():
        return []
    return run_probe(options, "calls", isas[0] if isas else None)


def write_results(options, merged, suffix):
    """Writes the results and the report, their names with the suffix before the dot, and shows the summary."""
    folder = folder_for_results(options)
    path = folder / f"results{suffix}.json"
    previous = keep_earlier(path)
    path.write_text(json.dumps(merged, indent=1), encoding="utf-8")
    found = results.Results(merged)
    with open(path.with_suffix(".csv"), "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(results.csv_rows(found))
    said = report.write(found, folder, suffix).replace(str(folder), shown(folder))
    print(said)
    if options.earlier:
        print(f"Since {options.compare}:\n{compare.text(options.earlier, found, most=8)}")
    elif previous and not suffix:
        try:
            since = compare.summary(compare.read(previous), found)
        except SystemExit:
            since = "it cannot be read."
        print(f"Since {previous.name}: {since}")
    return found


def measure(options):
    names = list_cases(options)
    pytorch = PyTorch(options, names)
    names += pytorch.names
    if options.list:
        print("\n".join(names))
        return 0
    print(f"Measuring {results.count_text([results.parse(name) for name in names])} in "
          f"{results.plural(options.rounds, 'round')}.\nCtrl-C ends it and reports what there is.", flush=True)
    progress = Progress(names, options.rounds)
    rounds, interrupted, calls = [], False, []
    with tempfile.TemporaryDirectory() as temporary:
        try:
            calls = one_token(options)
            for _ in range(options.rounds):
                run_round(options, progress, temporary, rounds)
                rounds[-1]["benchmarks"] += pytorch.run_round(progress, temporary, rounds[-1]["context"])
        except KeyboardInterrupt:
            interrupted = True
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # from here on it would lose what was measured
        progress.close()
    if not rounds or not results.names_measured(rounds):
        print("Interrupted before anything was measured.")
        return INTERRUPTED

    context = {**machine_context(options), results.PEER + "pytorch": pytorch.description}
    if interrupted:
        context["partial"] = f"Interrupted after {len(rounds) - 1} whole rounds of {options.rounds}."
    merged = results.merge(rounds, context)
    merged["one_token"] = calls
    found = write_results(options, merged, ".partial" if interrupted else "")
    failures = [f"FAILED: {case.operation}_{case.direction} ({case.isa}): {why}" for case, why in found.errors.items()
                if not results.is_peer(case)]
    print("\n".join(failures), end="\n" if failures else "")
    return INTERRUPTED if interrupted else int(bool(failures))


def main(words):
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        options = arguments.parse(words)
        return 0 if options.check_arguments else measure_probe(options) if options.probe else measure(options)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
