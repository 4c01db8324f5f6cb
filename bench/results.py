# SPDX-License-Identifier: BSD-2-Clause
"""Merges the results of a run's rounds into one file in Google Benchmark's format, and reads such a file.

A case's limit is the faster of the plain and the non-temporal copy (forward) or sum (backward) at the same shape in the
same round. Two cases are compared round by round, because the machine changes between rounds; the result is the median.
"""
import collections
import copy
import dataclasses
import re
import statistics

# type is that of the elements. way is the way to make the call, one of engine_calls.c, or "" for nothing but the norm.
Case = collections.namedtuple("Case", "operation direction isa mode tokens channels type way", defaults=("f32", ""))

CASE = re.compile(r"(?P<operation>\w+)_(?P<direction>forward|backward)/(?P<type>f32|bf16|f16)(-(?P<way>\w+))?"
                  r"/(?P<isa>\w+)/(?P<mode>\w+)/tokens:(?P<tokens>\d+)/channels:(?P<channels>\d+)")
LIMIT = re.compile(r"(?P<operation>limit_(?P<kind>copy|add)\w*)/(?P<type>f32|bf16|f16)/tokens:(?P<tokens>\d+)"
                   r"/channels:(?P<channels>\d+)")

# The bytes of an element.
BYTES = {"f32": 4, "bf16": 2, "f16": 2}
# The ways whose times are by the wall clock, whatever the others' are.
BY_WALL_CLOCK = ("one_thread", "threads")

# From this relative spread on, the rounds disagree too much for a conclusion.
WIDE = 0.15

NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}

# How keys begin in the context that dynnorm-bench writes, as in "shapes, main" and "peer, loops".
SHAPES = "shapes, "
PEER = "peer, "


def plain_name(name):
    """The name without what Google Benchmark appends to say how the time was measured."""
    return name.removesuffix("/real_time")


def parse(name):
    """The Case that a name stands for, or None. A limit's has neither isa nor mode."""
    found = CASE.fullmatch(name)
    if found:
        return Case(found["operation"], found["direction"], found["isa"], found["mode"], int(found["tokens"]),
                    int(found["channels"]), found["type"], found["way"] or "")
    found = LIMIT.fullmatch(name)
    if found:
        direction = "forward" if found["kind"] == "copy" else "backward"
        return Case(found["operation"], direction, None, None, int(found["tokens"]), int(found["channels"]),
                    found["type"])
    return None


def name_of(case):
    """The name of a case as people read it."""
    if is_limit(case):
        return f"{case.operation}{'' if case.type == 'f32' else ' ' + case.type} at {case.tokens} x {case.channels}"
    return f"{case.operation}_{case.direction}/{kind(case)}/{case.isa}/{case.mode} at {case.tokens} x {case.channels}"


def kind(case):
    """The type of a case and the way of its call, as in names."""
    return f"{case.type}-{case.way}" if case.way else case.type


def bytes_moved(case):
    """What a pass reads and writes at least, as way_bytes in engine_calls.c says."""
    size = BYTES[case.type]
    per_element = (4 * size if case.way.startswith("residual") else size + 1 if case.way.startswith("i8") else
                   (2 if case.direction == "forward" else 3) * size)
    return per_element * case.tokens * case.channels


def is_ordinary(case):
    """Whether it is a norm of floats, and nothing else."""
    return case.type == "f32" and not case.way


def is_limit(case):
    return case.isa is None


def is_peer(case):
    return case.isa == "peer"


def shape_of(case):
    return case.tokens, case.channels


def processors(context):
    """How many processors the machine has; 0 where that is not known, as without /proc."""
    return max(context.get("num_cpus", 0), 0)


def plural(count, noun):
    return f"{count} {noun}{'s'[:count != 1]}"


def count_text(cases):
    """How many cases there are. Limits are none: they are what cases are compared with."""
    limits = sum(map(is_limit, cases))
    return plural(len(cases) - limits, "case") + (f" and {plural(limits, 'limit')} (copies and sums)" if limits else "")


def parse_shapes(text):
    """[(tokens, channels)] from a text like "1x4096 32x1024"."""
    return [tuple(map(int, shape.split("x"))) for shape in text.split()]


def nanoseconds(entry, threads):
    """The time that counts: CPU time with one thread, wall-clock time with several."""
    case = parse(plain_name(entry["name"]))
    by_wall_clock = threads > 1 or case and case.way in BY_WALL_CLOCK
    return entry["real_time" if by_wall_clock else "cpu_time"] * NANOSECONDS[entry["time_unit"]]


def limit_key(case):
    """What a case has in common with its limits; None if it has none, as where the clock is another or a row is a
    call."""
    return None if case.way in BY_WALL_CLOCK or case.way.startswith("row_") else (
        case.direction, BYTES[case.type], *shape_of(case))


def measured(entry):
    return entry.get("run_type", "iteration") == "iteration" and not entry.get("error_occurred")


def names_measured(rounds):
    """The names of all cases that were measured in any of the rounds' files."""
    return {plain_name(entry["name"]) for one in rounds for entry in one["benchmarks"] if measured(entry)}


def merge(rounds, context=()):
    """Merges the rounds' files into one, with the repetitions of each case side by side. Adds the counter
    time_over_limit to each case. context is added to the first round's."""
    merged = {"context": {**rounds[0]["context"], **dict(context)}, "benchmarks": []}
    threads = int(merged["context"].get("threads", 1))
    repetitions = {}
    for index, one in enumerate(rounds):
        limits = {}
        for entry in one["benchmarks"]:
            case = parse(plain_name(entry["name"]))
            if case and is_limit(case) and measured(entry):
                key = limit_key(case)
                limits[key] = min(nanoseconds(entry, threads), limits.get(key, float("inf")))
        for entry in one["benchmarks"]:
            name = plain_name(entry["name"])
            case = parse(name)
            entry = {**entry, "name": name, "run_name": name, "repetitions": len(rounds), "repetition_index": index}
            if case and not is_limit(case):
                entry.update(type=case.type, way=case.way)
            key = case and limit_key(case)
            if key in limits and measured(entry):
                entry["time_over_limit"] = nanoseconds(entry, threads) / limits[key]
            repetitions.setdefault(name, []).append(entry)
    for family, entries in enumerate(repetitions.values()):
        merged["benchmarks"] += [{**entry, "family_index": family, "per_family_instance_index": 0}
                                 for entry in entries]
    return merged


@dataclasses.dataclass(frozen=True)
class Spread:
    """The median and the spread of a figure that was measured in several rounds."""
    median: float
    low: float  # the quartiles
    high: float
    least: float
    most: float
    rounds: int

    @staticmethod
    def of(values):
        values = list(values)
        low, high = (values * 2)[:2]
        if len(values) > 1:
            low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return Spread(statistics.median(values), low, high, min(values), max(values), len(values))

    @property
    def relative(self):
        return (self.high - self.low) / self.median

    def is_wide(self):
        """Whether the rounds disagree too much for a conclusion."""
        return self.relative > WIDE


def difference(figures, others):
    """By how much the larger of two medians is above the smaller one, as a fraction."""
    low, high = sorted((statistics.median(figures), statistics.median(others)))
    return high / low - 1


class Results:
    """The results of the library, the limits and the peers, read from a file in Google Benchmark's format."""

    def __init__(self, merged):
        self.context = merged["context"]
        self.threads = int(self.context.get("threads", 1))
        self.times = {}  # {case: {round: nanoseconds}}, the ordinary cases and those of what engines need
        self.over_limit = {}  # {case: {round: time over limit}}
        self.errors = {}  # {case: message}
        self.deviations = {}  # {case: a peer's deviation from the library}
        self.busy_threads = {}  # {case: how many threads had work}, if there were several threads
        for entry in merged["benchmarks"]:
            case = parse(entry["run_name"])
            if case and entry.get("error_occurred"):
                self.errors[case] = entry["error_message"]
            elif case and measured(entry):
                index = entry["repetition_index"]
                self.times.setdefault(case, {})[index] = nanoseconds(entry, self.threads)
                if "time_over_limit" in entry:
                    self.over_limit.setdefault(case, {})[index] = entry["time_over_limit"]
                if "busy_threads" in entry:
                    self.busy_threads[case] = int(entry["busy_threads"])
                if "deviation" in entry:
                    self.deviations[case] = max(entry["deviation"], self.deviations.get(case, 0))
        self.one_token = merged.get("one_token", [])  # what dynnorm-probe says of single calls
        self.reasons = {key.removeprefix(SHAPES): parse_shapes(value) for key, value in self.context.items()
                        if key.startswith(SHAPES)}
        self.peers = {key.removeprefix(PEER): value for key, value in self.context.items() if key.startswith(PEER)}
        self.survey()

    def survey(self):
        """Finds what the cases have in common."""
        self.rounds = len({index for rounds in self.times.values() for index in rounds})
        measured_isas = {case.isa for case in self.times}
        self.isas = [isa for isa in self.context.get("isas", "").split() if isa in measured_isas]
        shapes = {shape_of(case) for case in self.times}
        self.main_shapes = [shape for shape in self.reasons.get("main", []) if shape in shapes]

    def ordinary(self):
        """The same results without those of what engines need."""
        fewer = copy.copy(self)
        for name in ("times", "over_limit", "errors", "deviations", "busy_threads"):
            setattr(fewer, name, {case: value for case, value in getattr(self, name).items() if is_ordinary(case)})
        fewer.survey()
        return fewer

    def time(self, case):
        """The Spread of the case's nanoseconds, or None."""
        return Spread.of(self.times[case].values()) if case in self.times else None

    def time_over_limit(self, case):
        return Spread.of(self.over_limit[case].values()) if case in self.over_limit else None

    def figures(self, case):
        """What two measurements of a case are compared by, {round: figure}: the multiples of its limit, which change
        less than the machine does, or the times if it has none."""
        return self.over_limit.get(case) or self.times[case]

    def halves_differ(self, case):
        """The relative difference between the medians of the even and of the odd rounds; 0 of a single round."""
        halves = [[figure for index, figure in self.figures(case).items() if index % 2 == odd] for odd in (0, 1)]
        return difference(*halves) if all(halves) else 0

    def bytes_per_second(self, case):
        time = self.time(case)
        return time and bytes_moved(case) / time.median * 1e9

    def limit_bytes_per_second(self, direction, shape):
        """The speed of the fastest limit at a shape, or None."""
        speeds = [self.bytes_per_second(case) for case in self.times
                  if is_limit(case) and is_ordinary(case) and case.direction == direction and shape_of(case) == shape]
        return max(speeds, default=None)

    def ratio(self, above, below):
        """The Spread of the total time of some cases over that of others; None if one of them was not measured."""
        if not all(case in self.times for case in (*above, *below)):
            return None
        common = set.intersection(*(set(self.times[case]) for case in (*above, *below)))
        if not common:
            return None
        return Spread.of(sum(self.times[case][index] for case in above) / sum(self.times[case][index] for case in below)
                         for index in sorted(common))


CSV_COLUMNS = ("kind", "operation", "direction", "type", "way", "isa", "mode", "tokens", "channels", "rounds",
               "time_ns", "time_ns_least", "time_ns_most", "bytes_per_second", "tokens_per_second", "time_over_limit",
               "time_over_limit_low", "time_over_limit_high", "halves_differ", "deviation", "error")


def csv_rows(results):
    """Yields the head and a row for each case. Times and ratios are medians; low and high are quartiles."""
    yield CSV_COLUMNS
    for case in [*results.times, *(case for case in results.errors if case not in results.times)]:
        by = "limit" if is_limit(case) else "peer" if is_peer(case) else "library"
        row = [by, case.operation, case.direction, case.type, case.way, case.isa or "", case.mode or "",
               *shape_of(case)]
        time, over = results.time(case), results.time_over_limit(case)
        if time:
            row += [len(results.times[case]), f"{time.median:.6g}", f"{time.least:.6g}", f"{time.most:.6g}",
                    f"{results.bytes_per_second(case):.6g}", f"{case.tokens / time.median * 1e9:.6g}"]
        else:
            row += [""] * 6
        row += [f"{over.median:.4g}", f"{over.low:.4g}", f"{over.high:.4g}"] if over else [""] * 3
        row.append(f"{results.halves_differ(case):.3g}" if time else "")
        deviation = results.deviations.get(case)
        yield [*row, "" if deviation is None else f"{deviation:.3g}", results.errors.get(case, "")]
