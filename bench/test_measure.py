#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests that dynnorm-bench measures every case that it lists, and that measure.py selects, runs and merges correctly.

usage: test_measure.py PATH-OF-DYNNORM-BENCH
"""
import csv
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "test/harness"), str(HERE)]
import tap  # noqa: E402 (found in the harness of the tests)
import measure  # noqa: E402 (beside this file)
import operations  # noqa: E402
import probes  # noqa: E402
import results  # noqa: E402

PROGRAM = sys.argv[1]
MEASURE = [sys.executable, str(HERE / "measure.py"), "--program", PROGRAM]
FAST = "--benchmark_min_time=0.0001"


def run(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def check_usage_error(command, message, name):
    done = run(command)
    tap.check(done.returncode == 2 and message in done.stdout, name,
              f"{command}\nexit status {done.returncode}, expected 2 and '{message}'\n{done.stdout}")


def listed(*options):
    done = run([*MEASURE, "--benchmark_list_tests", *options])
    return done.stdout.split() if done.returncode == 0 else []


def test_program(folder):
    path = os.path.join(folder, "measured.json")
    one_token = [PROGRAM, "--shape=1x100"]
    names = tap.check_runs([*one_token, "--benchmark_list_tests"], "dynnorm-bench lists the cases of one token")
    printed = tap.check_runs([*one_token, FAST, f"--benchmark_out={path}", "--benchmark_out_format=json"],
                             "dynnorm-bench measures them")
    if names is None or printed is None:
        return
    with open(path, encoding="utf-8") as file:
        measured = {entry["name"]: entry for entry in json.load(file)["benchmarks"]}
    tap.check_equal(sorted(measured), sorted(names.split()), "every listed case is measured")
    for name, entry in measured.items():
        tensors = 3 if "backward" in name or "add" in name else 2
        ratio = entry.get("bytes_per_second", 0) / entry.get("tokens_per_second", 1)
        tap.check(abs(ratio / (tensors * 4 * 100) - 1) < 1e-6, f"{name}: bytes and tokens per second agree",
                  f"got {ratio} bytes per token, expected {tensors * 4 * 100}\n{entry}")
    tap.check(run([PROGRAM, "--benchmark_filter=no_such_case"]).returncode == 1,
              "a filter that selects nothing is an error")
    check_usage_error([PROGRAM, "--no_such_option"], "no_such_option", "an unknown option is an error")


def entries_of(path, *options):
    """The results of dynnorm-bench with these options, {name without a suffix: entry}."""
    done = run([PROGRAM, FAST, f"--benchmark_out={path}", "--benchmark_out_format=json", *options])
    if not tap.check(done.returncode == 0, f"dynnorm-bench {' '.join(options)}", done.stdout[-2000:]):
        return {}
    with open(path, encoding="utf-8") as file:
        return {entry["name"].removesuffix("/real_time"): entry for entry in json.load(file)["benchmarks"]}


def test_flags(folder):
    """Tests that the report is told how the kernels were compiled and how far peers may deviate."""
    path = os.path.join(folder, "flags.json")
    entries_of(path, "--shape=1x1", "--op=dyt_forward")
    with open(path, encoding="utf-8") as file:
        context = json.load(file)["context"]
    tap.check_equal(float(context["peer tolerance"]), 1e-4, "the tolerance for peers is told")
    commands = pathlib.Path(PROGRAM).resolve().parent.parent / "compile_commands.json"
    if not commands.exists():
        tap.skip("the flags of the kernels", "no compile_commands.json")
        return
    told = set(context["compiler flags"].replace(";", " ").split())
    with open(commands, encoding="utf-8") as file:
        kernels = [one for one in json.load(file)
                   if "-DDYNNORM_TABLE=" in one["command"] and pathlib.Path(one["file"]).parent.parent.name == "src"]
    tap.check(kernels, "there are commands that compile kernels")
    for one in kernels:
        words = one["command"].split()
        flags = {word for word in words if re.match(r"-m|-ffp-|-fno-(fast-math|math-errno)|-fno-.*vectorize", word)}
        flags.add([word for word in words if word.startswith("-O")][-1])
        tap.check(flags <= told and len(flags) > 3, f"the flags of {one['output']} are told",
                  f"{flags - told} not in {told}")


def test_peers(folder):
    path = os.path.join(folder, "peers.json")
    right = entries_of(path, "--shape=3x100", "--isa=peer")
    wrong = entries_of(path, "--shape=3x100", "--isa=peer", "--peer_tolerance=-1")
    measured = {name for name, entry in right.items() if "/peer/" in name and not entry.get("error_occurred")}
    if not measured:
        tap.skip("wrong peers", "no peer in this build")
        return
    tap.check(all(wrong[name].get("error_message", "").startswith("wrong: ") and not wrong[name].get("cpu_time")
                  for name in measured), "a peer beyond the tolerance is marked, and not measured", str(wrong))


def test_outputs(folder):
    """Tests that limits and kernels do all of their work, also in several threads."""
    path, threads = os.path.join(folder, "outputs.json"), len(os.sched_getaffinity(0))
    options = ["--digest", "--shape=2000x33"]
    expected = {name: entry for name, entry in entries_of(path, *options).items() if "/peer/" not in name}
    tap.check_equal({name: entry["unwritten"] for name, entry in expected.items() if entry["unwritten"]}, {},
                    "limits and kernels write all of their outputs")
    for direction, kind in (("forward", "limit_copy"), ("backward", "limit_add")):
        digests = {entry["digest"] for name, entry in expected.items() if name.startswith(kind)}
        tap.check(len(digests) == 1, f"the limits of {direction} agree", str(digests))
    if threads == 1:
        tap.skip("the outputs of several threads", "one processor")
        return
    one_token = entries_of(path, "--shape=1x100", "--threads=2")
    tap.check_equal({name.split("_")[0] == "limit": entry["busy_threads"] for name, entry in one_token.items()},
                    {True: 2, False: 1}, "one token is the work of one thread")
    got = entries_of(path, *options, f"--threads={min(threads, 3)}")
    for what in ("unwritten", "digest"):
        tap.check_equal({name: entry[what] for name, entry in got.items()},
                        {name: entry[what] for name, entry in expected.items()},
                        f"several threads leave in the outputs what one does: {what}")


def test_selection():
    check_usage_error([*MEASURE, "--benchmark_filter=["], "Could not compile benchmark re",
                      "a filter that is no regular expression")
    names = listed("--isa", "scalar", "--op", "dyt_forward,rmsnorm", "--shape", "3x5", "--shape", "7x11")
    tap.check_equal({name.split("/")[0] for name in names if not name.startswith("limit")},
                    {"dyt_forward", "rmsnorm_forward", "rmsnorm_backward"}, "--op selects operations and directions")
    tap.check_equal({"/".join(name.split("/")[-2:]) for name in names},
                    {"tokens:3/channels:5", "tokens:7/channels:11"}, "--shape selects shapes, repeated")
    tap.check_equal({name.split("/")[2] for name in names if not name.startswith("limit")}, {"scalar"},
                    "--isa selects instruction sets")
    forward = listed("--op", "dyt_forward", "--shape", "3x5")
    tap.check_equal({name.split("/")[0] for name in forward if name.startswith("limit_copy")} != set()
                    and not any(name.startswith("limit_add") for name in forward), True,
                    "the limits are those of the direction")
    module = "import sys; sys.path.insert(0, sys.argv[1]); import arguments; "
    done = run([sys.executable, "-c", f"{module}print([arguments.parse([one]).list for one in sys.argv[2:]])",
                HERE, "--benchmark_list_tests=false", "--benchmark_list_tests=0", "--benchmark_list_tests=true",
                "--benchmark_list_tests"])
    tap.check_equal(done.stdout.strip(), "[False, False, True, True]", "--benchmark_list_tests=false does not list")
    quick, standard, full = (len(listed(*option)) for option in (["--quick"], [], ["--full"]))
    tap.check(0 < quick < standard < full, "--quick, the default and --full", f"{quick}, {standard}, {full}")

    for options, message, name in (
            (["--isa", "mmx"], "scalar, peer", "an unknown instruction set"),
            (["--op", "batchnorm"], "layernorm, rmsnorm, dyt, dyisru", "an unknown operation"),
            (["--op", "rmsnorm", "--op", "dyt_sideways"], "as in dyt_forward", "an unknown pass"),
            (["--shape", "64"], "TOKENSxCHANNELS", "a shape that is none"),
            (["--shape", "1x1,64x0"], "TOKENSxCHANNELS", "an empty shape"),
            (["--shape", "4000000x1000"], "memory", "a shape beyond the memory"),
            (["--threads", "0"], "thread", "no threads"),
            (["--threads", "99999"], "fewer processors", "more threads than processors"),
            (["--rounds", "0"], "round", "no rounds"),
            (["--fast"], "--fast", "an unknown option"),
            (["--quick", "--full"], "not allowed with", "two sets"),
            (["--cliffs", "--quick"], "not allowed with", "a set of what has none"),
            (["--cliffs", "--op", "dyt"], "one --isa only", "an operation of what measures all"),
            (["--calls", "--isa", "mmx"], "mmx", "an unknown instruction set of a probe"),
            (["--benchmark_out=x"], "--out", "the option that is this program's own"),
            (["--benchmark_repetitions=few"], "few", "repetitions that are no number"),
            (["--benchmark_no_such"], "benchmark_no_such", "an option unknown to Google Benchmark"),
            (["--benchmark_filter=nothing_of_it"], "no case", "a filter that selects nothing")):
        check_usage_error([*MEASURE, *options], message, f"{name} is an error")
    # bench/run says this before it installs or builds anything.
    for options, message, name in ((["--fast"], "--fast", "an unknown option"),
                                   (["--isa", "mmx"], "scalar, peer", "an unknown instruction set"),
                                   (["--op", "batchnorm"], "layernorm, rmsnorm", "an unknown operation"),
                                   (["--shape", "64"], "TOKENSxCHANNELS", "a shape that is none"),
                                   (["--shape", "4000000x1000000"], "memory", "a shape beyond the memory"),
                                   (["--threads", "99999"], "fewer processors", "more threads than processors"),
                                   (["--out", "/dev/null/folder"], "cannot write", "a folder that cannot be made"),
                                   (["--compare", "/dev/null"], "no results", "an earlier run that is none")):
        check_usage_error([*MEASURE, "--check-arguments", *options], message, f"before the build: {name} is an error")
    with tempfile.TemporaryDirectory() as folder:
        done = run([*MEASURE, "--check-arguments", "--out", os.path.join(folder, "new/folder")])
        tap.check_equal([done.returncode, os.listdir(folder)], [0, []], "checking --out leaves no folder behind")
    printed = tap.check_runs([*MEASURE, "--help"], "--help") or ""
    source = (HERE / "arguments.py").read_text(encoding="utf-8")
    options = {*re.findall(r'_argument\("(--[a-z-]+)"', source), "--isa", "--op", "--shape", "--calls", "--cliffs",
               "--streaming", "--types", "--residual", "--int8", "--executor", "--prepared", "--benchmark_filter"}
    options -= {"--program", "--check-arguments"}
    tap.check(len(options) > 12 and all(option in printed for option in options), "names every option", printed)
    tap.check(all(operation in printed for operation in operations.OPERATIONS), "and every operation", printed)


def test_engine_options():
    shape = ["--shape", "3x5", "--isa", "scalar"]
    plain, quick = set(listed(*shape)), set(listed("--quick", *shape))
    tap.check(plain and all("/f32/" in name for name in plain | quick),
              "what engines need is measured only if one asks for it", str(plain))
    both, alone = listed("--quick", "--types", *shape), listed("--types", *shape)
    tap.check(set(alone) != set(both) and set(alone) | quick == set(both) and len(set(both)) == len(both),
              "alone, or besides a set", f"{sorted(set(alone) ^ set(both))}")
    tap.check_equal({name.split("/")[1] for name in alone}, {"f32", "bf16", "f16"}, "--types has three")
    tap.check_equal({name.split("/")[1] for name in listed("--residual", *shape) if "limit" not in name},
                    {f"{kind}-residual{way}" for kind in ("f32", "bf16") for way in ("", "_apart", "_by_rows")},
                    "--residual has three ways")
    several = listed("--int8", "--prepared", "--op", "dyt", *shape)
    tap.check_equal({name.split("/")[1] for name in several if "limit" not in name},
                    {"f32", "bf16", *(f"{kind}-{way}" for kind in ("f32", "bf16")
                                      for way in ("i8_rows", "i8_given", "row_descriptor", "row_prepared")),
                     "f32-row_plain"}, "several sets at once")
    threads = len(os.sched_getaffinity(0))
    names = listed("--engines", *shape)
    tap.check_equal(any("-threads/" in name for name in names), threads > 1, "--engines has all that runs here")
    check_usage_error([*MEASURE, "--types", "--cliffs"], "--cliffs goes with", "a set of engines with another question")
    if shutil.which("taskset"):
        one = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *MEASURE]
        check_usage_error([*one, "--executor"], "one processor only", "threads on one processor")
        done = run([*one, "--benchmark_list_tests", "--engines", *shape])
        tap.check(done.returncode == 0 and "threads" not in done.stdout, "where --engines leaves them out", done.stdout)
    else:
        tap.skip("threads on one processor", "taskset is not installed")


def test_engines(folder):
    """Tests a run of all that engines need, and another that is compared with it."""
    options = ["--engines", "--shape", "16x64", "--op", "rmsnorm,dyt_forward", "--rounds", "2", FAST, "--out"]
    printed = tap.check_runs([*MEASURE, *options, folder], "a run of --engines")
    if printed is None:
        return
    end = printed[printed.index("Time / time"):].splitlines()
    tap.check(len(end) <= 20 and all(len(line) <= 80 for line in end if folder not in line),
              "the last screen is small", printed)
    wanted = {"bf16 / f32", "fused / add, call", "8 bits / f32", "prepared / plain"}
    tap.check(all(any(line.startswith(f"{one}: ") for line in end) for one in wanted), "and has some of each set",
              printed)
    with open(os.path.join(folder, "results.json"), encoding="utf-8") as file:
        found = json.load(file)
    names = listed(*options[:5])
    tap.check_equal({entry["name"] for entry in found["benchmarks"]}, set(names), "all of them are measured")
    kinds = {(entry["type"], entry["way"]) for entry in found["benchmarks"] if "type" in entry}
    tap.check({("f16", ""), ("bf16", "residual"), ("f32", "i8_given"), ("bf16", "row_prepared")} <= kinds,
              "results.json says the type of elements and the way of the call", str(kinds))
    for entry in found["benchmarks"]:
        case = results.parse(entry["name"])
        if entry.get("error_occurred"):
            tap.check(case.isa == "peer" and entry["error_message"].startswith(("unable: ", "wrong: ")),
                      f"{entry['name']}: why it was not measured", str(entry))
        elif results.is_limit(case):
            tap.check(abs(entry["bytes_per_second"] / entry["tokens_per_second"]
                          - (2 if case.direction == "forward" else 3) * results.BYTES[case.type] * 64) < 1e-3,
                      f"{entry['name']}: the bytes of a limit", str(entry))
        else:
            bytes_ = entry["bytes_per_second"] / entry["tokens_per_second"] * case.tokens
            tap.check(abs(bytes_ / results.bytes_moved(case) - 1) < 1e-6, f"{entry['name']}: the bytes that are moved",
                      f"{bytes_}, expected {results.bytes_moved(case)}")
    with open(os.path.join(folder, "results.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    tap.check_equal({(row["type"], row["way"]) for row in rows if row["kind"] == "library"}, kinds,
                    "and so does results.csv")
    for name in ("report.md", "report.html"):
        text = pathlib.Path(folder, name).read_text(encoding="utf-8")
        tap.check(all(f"{title}, " in text for title in ("Element types", "A residual", "Integers of 8 bits",
                                                         "Calls row by row", "Compared with others in 16 bits")),
                  f"{name} has a table of each")
    again = run([*MEASURE, *options, folder, "--isa", "scalar", "--compare", folder])
    cases = sum(row["isa"] == "scalar" for row in rows)
    tap.check(again.returncode == 0 and re.search(rf"\b\d+ of {cases} cases (became|seem) faster", again.stdout),
              "--compare says what changed", again.stdout)


FAILING = """#!/usr/bin/env python3
import json, sys
names = ["dyt_forward/f32/scalar/portable/tokens:3/channels:5", "dyt_forward/f32/peer/loops/tokens:3/channels:5"]
out = [argument.partition("=")[2] for argument in sys.argv if argument.startswith("--benchmark_out=")]
if out:
    entries = [{"name": name, "run_name": name, "run_type": "iteration", "cpu_time": 1, "real_time": 1,
                "time_unit": "ns", "error_occurred": WHICH in name, "error_message": "it failed"} for name in names]
    json.dump({"context": {"isas": "scalar"}, "benchmarks": entries}, open(out[0], "w"))
else:
    print("\\n".join(names))
"""


def test_failures(folder):
    """Tests the report of a program of which one case fails."""
    for which, status in (("scalar", 1), ("peer", 0)):
        program = pathlib.Path(folder, f"failing-{which}")
        program.write_text(FAILING.replace("WHICH", repr(f"/{which}/")), encoding="utf-8")
        program.chmod(0o755)
        done = run([*MEASURE[:-1], program, "--rounds=4", "--out", os.path.join(folder, which)])
        tap.check(done.returncode == status and ("FAILED: dyt_forward (scalar): it failed" in done.stdout) == status,
                  f"a case of {which} that fails: exit status {status}", f"{done.returncode}\n{done.stdout}")


def test_run(folder, threads):
    options = ["--shape", "16x64", "--op", "rmsnorm,dyt", "--benchmark_repetitions=3", FAST, "--threads", str(threads),
               "--out", folder]
    printed = tap.check_runs([*MEASURE, *options], f"a run of three rounds, {threads} threads")
    if printed is None:
        return
    tap.check("100%" in printed and "round 3 of 3" in printed, "shows its progress", printed)
    limits = sum(name.startswith("limit") for name in listed(*options[:4], *options[6:8]))
    tap.check(f" cases and {limits} limits (copies and sums) in 3 rounds." in printed, "tells limits from cases",
              printed)
    report = os.path.join(folder, "report.html")
    # Its path is shown from here on where that is shorter.
    tap.check(report in printed or os.path.relpath(report) in printed, "says where the report is", printed)
    with open(os.path.join(folder, "results.json"), encoding="utf-8") as file:
        found = json.load(file)
    names = listed(*options[:4], *options[6:8])
    tap.check_equal([(entry["name"], entry["repetition_index"]) for entry in found["benchmarks"]],
                    [(name, index) for name in names for index in range(3)],
                    "each case in each round, its repetitions side by side, its name without a suffix")
    for entry in found["benchmarks"]:
        if entry["name"].startswith("limit_") or entry["name"].startswith("rmsnorm_backward/f32/scalar"):
            tap.check(entry.get("time_over_limit", 0) > 0.2, f"{entry['name']}: a multiple of the limit", str(entry))
    tap.check_equal(found["context"]["threads"], str(threads), "the number of threads is told")
    with open(os.path.join(folder, "results.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    tap.check_equal(len(rows), len(names), "results.csv has a row for each case")
    kinds = {"library", "limit", "peer"} if threads == 1 else {"library", "limit"}
    tap.check_equal({row["kind"] for row in rows}, kinds, "of the library, the limits and, in one thread, the peers")
    for name in ("report.md", "report.html"):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text = file.read()
        tap.check("16 x 64" in text and "libdynnorm on this machine" in text, f"{name} is of this run")
    again = run([*MEASURE, *options[:-1], os.path.join(folder, "again"), "--compare", folder])
    tap.check(again.returncode == 0 and f"Since {folder}:\n" in again.stdout and
              re.search("cases (became|seem) faster", again.stdout), "--compare says what changed since an earlier run",
              again.stdout)
    again = run([*MEASURE, *options])
    with open(os.path.join(folder, "results.previous.json"), encoding="utf-8") as file:
        tap.check(json.load(file) == found and "Since results.previous.json: " in again.stdout,
                  "an earlier run in the same folder is kept, and compared with", again.stdout)
    end = again.stdout[again.stdout.index("Time of one norm"):].splitlines()
    tap.check(len(end) <= 20 and all(len(line) <= 80 for line in end if report not in line),
              "the last screen is small", again.stdout)


def test_load():
    for given, expected in (("0.25 1 2.5", {"load_avg": [0.25, 1, 2.5]}), ("", {}), ("0,25 1", {})):
        os.environ["DYNNORM_LOAD_AT_START"] = given
        tap.check_equal(measure.load_before_build(), expected, f"the load before the build: {given!r}")
    del os.environ["DYNNORM_LOAD_AT_START"]


def test_keep_earlier(folder):
    """Tests that no number of runs in a folder overwrites what an earlier one has written."""
    os.mkdir(folder)
    path = pathlib.Path(folder, "results.json")
    tap.check_equal(measure.keep_earlier(path), None, "a first run has nothing to keep")
    for number in range(4):
        path.write_text(str(number), encoding="utf-8")
        os.utime(path, (1e9, 1e9))
        tap.check_equal(measure.keep_earlier(path).name, "results.previous.json", f"what run {number} wrote is moved")
    kept = {one.name: one.read_text(encoding="utf-8") for one in pathlib.Path(folder).iterdir()}
    dated = [name for name in sorted(kept) if re.fullmatch(r"results\.2001-09-\d\d-\d{6}\+*\.json", name)]
    tap.check(sorted(kept.values()) == list("0123") and kept["results.previous.json"] == "3" and len(dated) == 3,
              "the latest is results.previous.json, older ones have their times", str(kept))


def interrupted(folder, is_time):
    """What measure.py printed, its exit status, and the seconds that it took after Ctrl-C, which comes when a line that
    it prints is the time for it. The signal goes to the whole group, as from a terminal."""
    with subprocess.Popen([*MEASURE, "--isa", "scalar", "--op", "dyt,rmsnorm", "--shape", "16x64,16x65", "--rounds",
                           "100", "--benchmark_min_time=0.02", "--out", folder], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, start_new_session=True) as process:
        printed = ""
        for line in process.stdout:
            printed += line
            if is_time(line):
                break
        begin = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        printed += process.stdout.read()
    return printed, process.returncode, time.monotonic() - begin


def test_unfinished(folder):
    """Tests that what an interrupted dynnorm-bench has written can be read."""
    path = pathlib.Path(folder, "unfinished.json")
    begin = '{"context": {"threads": "1"}, "benchmarks": ['
    entry = '{"name": "limit_copy/f32/tokens:1/channels:1", "cpu_time": 1}'
    for text, count in ((f"{begin}{entry}]}}", 1), (f"{begin}{entry},\n{entry}\n", 2), (f"{begin}{entry},\n", 1),
                        (f"{begin}", 0)):
        path.write_text(text, encoding="utf-8")
        found = measure.read_round(path)
        tap.check_equal(found and len(found["benchmarks"]), count, f"{count} cases in an unfinished file")
    for text in ("", begin[:20], begin + entry[:-10]):
        path.write_text(text, encoding="utf-8")
        tap.check_equal(measure.read_round(path), None, "a file that is cut off in its middle")


def test_interrupt(temporary):
    folder = os.path.join(temporary, "new", "interrupted")
    printed, status, seconds = interrupted(folder, lambda line: "Measuring" in line)
    tap.check(status == 130 and seconds < 1, "Ctrl-C at the beginning", f"{status} after {seconds} s\n{printed}")
    if "before anything" in printed:
        tap.check(not os.path.exists(os.path.dirname(folder)), "leaves no folder")
    printed, status, seconds = interrupted(folder, lambda line: re.search(r"round [2-9]", line))
    tap.check(status == 130 and seconds < 1, "Ctrl-C in between", f"{status} after {seconds} s\n{printed}")
    tap.check("Interrupted after " in printed and "report.partial.html" in printed, "reports what there is", printed)
    files = os.listdir(folder)
    tap.check("results.partial.json" in files and all(".partial." in name for name in files),
              "in files of their own", str(files))
    with open(os.path.join(folder, "results.partial.json"), encoding="utf-8") as file:
        measured = json.load(file)["benchmarks"]
    tap.check(max(entry["repetition_index"] for entry in measured) >= 1, "also of the round that had begun")


def test_time_left():
    for seconds, words in (33, "0:33 left"), (104, "1:44 left"), (299.8, "5:00 left"):
        out = io.StringIO()
        progress = measure.Progress(["one", "another"], 1, out)
        progress.start -= seconds
        progress.advance("one")
        tap.check(f" {words} " in out.getvalue(), f"half is done after {seconds} s: {words}", out.getvalue())


def records_of(name, folder, status):
    """What a probe measures through measure.py, which writes it to a file and shows it."""
    done = run([*MEASURE, f"--{name}", "--out", folder])
    tap.check(done.returncode in status and "|" in done.stdout, f"--{name} shows a table",
              f"exit status {done.returncode}\n{done.stdout}")
    with open(os.path.join(folder, f"{name}.json"), encoding="utf-8") as file:
        return json.load(file), done.returncode


def test_probes(folder):
    """Tests that dynnorm-probe measures all that it should."""
    (_, *calls), _ = records_of("calls", folder, [0])
    tap.check_equal({(one["operation"], one["by"], one["channels"]) for one in calls},
                    {(operation, by, channels) for channels in (288, 768, 4096) for operation, by in
                     [("nothing", "clock"), *((norm, by) for norm in operations.CORE
                                              for by in ("library", "descriptor", "prepared", "loop"))]},
                    "calls with one token")
    tap.check(all(0 < one["hot"] < one["cold"] and one["cold_low"] <= one["cold"] <= one["cold_high"]
                  for one in calls), "cold calls take longer than hot ones", str(calls))

    (head, *cliffs), status = records_of("cliffs", folder, [0, 1])
    tap.check_equal(status, int(bool(probes.too_slow(cliffs))), "the exit status says whether data are too slow")
    kernels = {(one["operation"], one["direction"], one["mode"]) for one in cliffs if one["type"] == "f32"}
    listed_here = {tuple([*name.split("/")[0].rsplit("_", 1), name.split("/")[3]])
                   for name in listed("--isa", head["isa"], "--shape", "1x1") if not name.startswith("limit")}
    tap.check_equal(kernels, {kernel for kernel in listed_here if kernel[2] != "sleef"}, "each kernel but SLEEF's")
    many = [one for one in cliffs if (one["type"], one["tokens"]) == ("f32", 64)]
    data = {kernel: [one["data"] for one in many if (one["operation"], one["direction"], one["mode"]) == kernel]
            for kernel in kernels}
    what_occurs = {(one["operation"], "forward", one["mode"], one["data"]) for one in many
                   if one["occurs"] and one["direction"] == "forward"}
    portable = {one for one in what_occurs if one[2] == "portable"}
    brief = {(*one[:2], "brief", one[3]) for one in portable if one[0] in ("dyt", "dyisru")}
    for element_type, tokens, expected in ("f32", 1, what_occurs), ("bf16", 64, portable | brief):
        tap.check_equal({(one["operation"], one["direction"], one["mode"], one["data"]) for one in cliffs
                         if (one["type"], one["tokens"]) == (element_type, tokens)}, expected,
                        f"{tokens} rows of {element_type} get what occurs, in the forward pass")
    tap.check(all(len(set(names)) == len(names) for names in data.values()), "each kind of data once")
    for kernel, names in sorted(data.items()):
        facts = operations.OPERATIONS[kernel[0]]
        tap.check(("saturated" in names) == (facts.parameter == "alpha") and ("beta 0" in names) ==
                  (facts.parameter == "beta") and ("denormal dy" in names) == (kernel[1] == "backward")
                  and "all NaN" in names, f"{' '.join(kernel)} gets the data that concern it", str(names))
    tap.check(all(one["ordinary"] > 0 and one["special"] > 0 for one in cliffs), "all of it is measured")

    (head, *stored), _ = records_of("streaming", folder, [0])
    sizes = {}
    for one in stored:
        sizes.setdefault((one["operation"], one["direction"], one["channels"]), []).append(
            4 * one["tokens"] * one["channels"] / head["level2"])
        tap.check(all(one[key] > 0 for key in ("cached", "streamed", "cached_and_read", "streamed_and_read")),
                  f"{one['operation']} {one['direction']}, {one['tokens']} x {one['channels']}, both ways", str(one))
    for which, factors in sizes.items():
        tap.check(all(abs(factor / 2 ** (index - 1) - 1) < 0.1 for index, factor in enumerate(factors))
                  and len(factors) == 8, f"{which}: outputs of 1/2 to 64 times the second-level cache", str(factors))
    check_usage_error([str(pathlib.Path(PROGRAM).with_name("dynnorm-probe")), "all"], "usage", "an unknown probe")


def test_pytorch(folder):
    """Tests the peer PyTorch if a Python here has it, also when it computes something else."""
    names = [name for name in listed("--shape", "20x48") if "/peer/pytorch/" in name]
    if not names:
        tap.skip("PyTorch", "no Python here can import torch, or the shared library was not built")
        return
    tap.check_equal(len(names), 8, "PyTorch is measured at four norms, forward and backward")
    typed = [name for name in listed("--types", "--shape", "20x48") if "/peer/pytorch/" in name]
    tap.check_equal(sorted(typed), sorted(name.replace("/f32/", f"/{kind}/") for name in names
                                          for kind in ("f32", "bf16", "f16")), "and so in 16 bits")
    names += [name for name in typed if "/bf16/" in name and "layernorm" not in name]
    library = pathlib.Path(PROGRAM).resolve().parent.parent / "libdynnorm.so"
    breaking = ("import sys; sys.path.insert(0, sys.argv.pop(1)); import peer_pytorch as peer, torch; "
                "right = peer.dyt; "
                "peer.FORWARD['dyt'] = lambda x, w, b, alpha: right(x, w, b, alpha) * (1 + torch.sin(x) * "
                "(1e-3 if x.dtype == torch.float32 else 0.5)); "
                "peer.main(*sys.argv[1:])")
    for python in (sys.executable, "/usr/bin/python3"):
        path = pathlib.Path(folder, "pytorch.json")
        done = subprocess.run([python, "-c", breaking, HERE, library, "0.0001", "f32=1e-4,bf16=0.04", path],
                              input="\n".join(names), text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              check=False)
        if done.returncode == 0:
            break
    entries = json.loads(path.read_text(encoding="utf-8"))
    tap.check_equal(done.stdout.split(), names, "it says what it has measured")
    for entry in entries:
        broken = entry["name"].startswith("dyt_")
        said = entry.get("error_message", "")
        tap.check(said.startswith("wrong: ") if broken else entry.get("cpu_time", 0) > 0 and not said,
                  f"{entry['name']}: {'what was broken is found' if broken else 'the same as the library'}", str(entry))


with tempfile.TemporaryDirectory() as temporary:
    test_pytorch(temporary)
    test_program(temporary)
    test_flags(temporary)
    test_peers(temporary)
    test_outputs(temporary)
    test_selection()
    test_engine_options()
    test_engines(os.path.join(temporary, "engines"))
    test_probes(os.path.join(temporary, "probes"))
    test_failures(temporary)
    test_unfinished(temporary)
    test_interrupt(temporary)
    test_time_left()
    test_load()
    test_keep_earlier(os.path.join(temporary, "kept"))
    test_run(os.path.join(temporary, "one"), 1)
    if len(os.sched_getaffinity(0)) > 1:
        test_run(os.path.join(temporary, "two"), 2)
    else:
        tap.skip("a run with two threads", "one processor")
tap.done()
