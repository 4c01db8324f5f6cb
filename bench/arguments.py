# SPDX-License-Identifier: BSD-2-Clause
"""The options of bench/run. help.txt describes them."""
import argparse
import os
import pathlib
import platform
import re
import tempfile

import compare
import engines
import operations

HERE = pathlib.Path(__file__).resolve().parent
USAGE_ERROR = 2

# For each set, how many times each case is measured, and for how many seconds at least each time.
ROUNDS = {"none": 5, "quick": 4, "standard": 5, "full": 5}
MIN_TIME = {"none": 0.008, "quick": 0.01, "standard": 0.008, "full": 0.02}


# The instruction sets beside scalar by architecture, and what /proc/cpuinfo calls what they need.
ISAS = {"x86_64": {"avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"}, "avx2": {"avx2", "fma"}},
        "aarch64": {"neon": set()}, "arm64": {"neon": set()}}
ISAS["AMD64"] = ISAS["x86_64"]  # as Windows says


class Parser(argparse.ArgumentParser):
    def format_help(self):
        return (HERE / "help.txt").read_text(encoding="utf-8")

    def error(self, message):
        self.exit(USAGE_ERROR, f"bench/run: {message}\nbench/run --help lists the options.\n")


def valid_isas():
    """What --isa accepts on this machine. dynnorm-bench has the last word: it knows what was built."""
    try:
        flags = re.findall(r"^flags\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    except OSError:
        flags = []
    listed = ISAS.get(platform.machine(), {})
    return [*(isa for isa, needs in listed.items() if not flags or needs <= set(flags[0].split())), "scalar", "peer"]


def valid_operations():
    return [*operations.OPERATIONS, *dict.fromkeys(f"{operation}_{direction}"
                                                   for operation, direction, _ in operations.KERNELS)]


def memory_bytes():
    """0 where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0


def words(lists):
    return [word for text in lists for word in text.split(",")]


def check_selection(parser, options):
    """Ends the program with what is valid if --isa, --op or --shape is not. dynnorm-bench checks all of it again, but
    only once it is built."""
    for isa in words(options.isa):
        if isa not in valid_isas():
            parser.error(f"--isa {isa}: this machine has {', '.join(valid_isas())}")
    for operation in words(options.op):
        if operation not in valid_operations():
            parser.error(f"--op {operation}: there are {', '.join(operations.OPERATIONS)}; or one pass, as in "
                         f"dyt_forward")
    for shape in words(options.shape):
        if not re.fullmatch(r"0*[1-9]\d*x0*[1-9]\d*", shape):
            parser.error(f"--shape {shape}: any TOKENSxCHANNELS is valid, such as 64x4096")
        tokens, channels = map(int, shape.split("x"))
        if 0 < memory_bytes() < 4 * 4 * tokens * channels:  # four tensors of float32
            parser.error(f"--shape {shape}: too large for this machine's memory")


def processors():
    """How many processors this process may run on; 0 where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


def check_engines(parser, options):
    """Settles which sets are measured. Ends the program if one processor is to be compared with two."""
    if options.all_engines:
        options.engines = [name for name in engines.SETS if name != "executor" or processors() != 1]
    elif "executor" in options.engines and processors() == 1:
        parser.error("--executor: this process may run on one processor only")
    if options.set is None:
        options.set = "none" if options.engines else "standard"


def missing_folders(path):
    """A folder and the folders above it, as far as they are not there, the innermost first."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    return missing


def check_folder(parser, folder):
    """Ends the program if no files can be written to the folder. Leaves nothing behind."""
    missing = []
    try:
        missing = missing_folders(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        parser.error(f"--out {folder}: cannot write there: {error.strerror}")
    finally:
        for one in missing:
            if one.exists():
                one.rmdir()


def parse(arguments):
    """The options. Ends the program with a message if they are wrong, in whatever way can be known before anything is
    built or measured."""
    parser = Parser(prog="bench/run", allow_abbrev=False)
    sets = parser.add_mutually_exclusive_group()
    sets.add_argument("--quick", dest="set", action="store_const", const="quick")
    sets.add_argument("--full", dest="set", action="store_const", const="full")
    for name in ("calls", "cliffs", "streaming"):
        sets.add_argument(f"--{name}", dest="probe", action="store_const", const=name)
    for name in engines.SETS:
        parser.add_argument(f"--{name}", dest="engines", action="append_const", const=name, default=[])
    parser.add_argument("--engines", dest="all_engines", action="store_true")
    parser.add_argument("--compare", metavar="OLD")
    parser.add_argument("--out", metavar="DIR", type=pathlib.Path, default=HERE.parent / "bench-results")
    for name in ("isa", "op", "shape"):
        parser.add_argument(f"--{name}", action="append", default=[])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--no-install", action="store_true")  # bench/run has heeded it
    # For bench/run and the tests.
    parser.add_argument("--program", default=HERE.parent / "build/bench/bench/dynnorm-bench")
    parser.add_argument("--check-arguments", action="store_true")
    parser.set_defaults(set=None, probe=None)
    options, rest = parser.parse_known_args(arguments)
    check_engines(parser, options)

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
    if 0 < processors() < options.threads:
        parser.error(f"--threads {options.threads}: this process may run on fewer processors than that")
    if options.probe and (options.engines or options.op or options.shape or options.threads > 1 or options.passed
                          or options.list or options.compare or len(words(options.isa)) > 1):
        parser.error(f"--{options.probe} goes with --out and one --isa only")
    check_selection(parser, options)
    if not options.list:
        check_folder(parser, options.out)
    options.earlier = compare.read(options.compare) if options.compare else None
    options.filtered = any(argument.startswith("--benchmark_filter") for argument in options.passed)
    if not any(argument.startswith("--benchmark_min_time") for argument in options.passed):
        options.passed.append(f"--benchmark_min_time={MIN_TIME[options.set]}")
    return options
