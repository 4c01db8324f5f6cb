# SPDX-License-Identifier: BSD-2-Clause
"""What engines need around a norm, in the report and on the terminal: element types of 16 bits, a residual, integers of
8 bits, an executor, prepared calls.

Each is a set of cases, and a block of ratios: a row says what is compared, and where; each norm has a column.
"""
import dataclasses
import statistics

import results
from comparisons import DIRECTIONS, NOTABLE, shape_text, verdict
from operations import CORE, OPERATIONS, PAIRS, title
from results import Case
from tables import Cell, Table

# The sets as dynnorm-bench calls them, and what the report calls them. The shapes of each are in the context.
TITLES = {"types": "Element types", "residual": "A residual", "int8": "Integers of 8 bits", "executor": "An executor",
          "prepared": "Calls row by row"}
SETS = tuple(TITLES)
# The ways to make the calls of each set.
WAYS = {"types": ("",), "residual": ("residual", "residual_apart", "residual_by_rows"),
        "int8": ("", "i8_rows", "i8_given"), "executor": results.BY_WALL_CLOCK,
        "prepared": ("row_plain", "row_descriptor", "row_prepared")}
HALVES = ("bf16", "f16")
WIDTH = 80  # of the terminal


@dataclasses.dataclass
class Row:
    """What is compared and where, how important that is (the less the more), and {operation: Spread}."""
    words: tuple
    rank: int
    spreads: dict

    def label(self):
        return f"{self.words[0]}: {' '.join(self.words[1:])}"


@dataclasses.dataclass
class Block:
    note: str
    rows: list


class Reader:
    """Compares cases of one instruction set, in the portable mode unless a kind says otherwise, as bf16@brief."""

    def __init__(self, found, isa):
        self.found, self.isa = found, isa
        self.operations = [name for name in (*CORE, "centered_dyisru")
                           if any(case.operation == name and not results.is_ordinary(case) for case in found.times)]

    def shapes(self, name):
        """[(rank, shape)] of a set: the last one, which is the largest, matters most, and then the first one."""
        listed = self.found.reasons.get(name, [])
        return [(0 if index == len(listed) - 1 else index + 1, shape) for index, shape in enumerate(listed)]

    def case(self, operation, direction, shape, kind):
        kind, _, mode = kind.partition("@")
        return Case(operation, direction, self.isa, mode or "portable", *shape, *kind_parts(kind))

    def row(self, words, rank, above, below):
        """The Row of two cases, of whose norms there is none yet: the arguments of case() without the first."""
        spreads = {name: self.found.ratio([self.case(name, *above)], [self.case(name, *below)])
                   for name in self.operations}
        return Row(words, rank, {name: spread for name, spread in spreads.items() if spread})


def types(reader):
    modes = dict.fromkeys(case.mode for case in reader.found.times if case.type in HALVES and case.isa == reader.isa)
    rows = [reader.row((f"{kind}{'' if mode == 'portable' else ', ' + mode} / f32", direction, shape_text(shape)),
                       4 * order + 2 * back + rank, (direction, shape, f"{kind}@{mode}"), (direction, shape, "f32"))
            for mode in modes for order, kind in enumerate(HALVES) for back, direction in enumerate(DIRECTIONS)
            for rank, shape in reader.shapes("types")]
    return Block(
        "Time with x, y, dy, dx, weight and bias of 16 bits / time of the same with floats. Half as many bytes "
        "are moved. Gradients of weight and bias are floats.", rows)


def residual(reader):
    rows = []
    for back, direction in enumerate(DIRECTIONS):
        for order, kind in enumerate(("f32", "bf16")):
            for rank, shape in reader.shapes("residual"):
                for way, words in (("residual_apart", "add, call"), ("residual_by_rows", "by rows")):
                    rows.append(reader.row((f"fused / {words}", kind, direction, shape_text(shape)),
                                           2 * back + order + rank + 3 * (way != "residual_apart"),
                                           (direction, shape, f"{kind}-residual"), (direction, shape, f"{kind}-{way}")))
    return Block(
        "Fused: the time of one call that adds a residual, keeps the sum and normalizes it (forward), or adds the "
        "sum's gradient to dx (backward) / time of a plain loop that adds and a call without it, over the whole "
        "tensor, or row by row with a prepared call: the most that a program can do without.", rows)


def int8(reader):
    rows = [reader.row((f"8 bits / {kind}", words, shape_text(shape)), order + rank + 2 * (way == "i8_given"),
                       ("forward", shape, f"{kind}-{way}"), ("forward", shape, kind))
            for way, words in (("i8_rows", "scales of rows"), ("i8_given", "scale given"))
            for order, kind in enumerate(("f32", "bf16")) for rank, shape in reader.shapes("int8")]
    return Block(
        "Time with y of 8 bits / time with y of the type of x. The scale of a row is found in the row. A given "
        "scale comes from a calibration, but that of DyT and DyISRU from weight and bias: "
        "dynnorm_largest_output.", rows)


def executor(reader):
    threads = reader.found.context.get("threads of the executor", "?")
    rows = [reader.row((f"{threads} threads / 1", kind, direction, shape_text(shape)), 2 * back + order + rank,
                       (direction, shape, f"{kind}-threads"), (direction, shape, f"{kind}-one_thread"))
            for back, direction in enumerate(DIRECTIONS) for order, kind in enumerate(("f32", "bf16"))
            for rank, shape in reader.shapes("executor")]
    return Block(
        f"Time on an executor of {threads} threads, each on a core of its own / time on one thread, by the wall "
        f"clock.", rows)


def prepared(reader):
    rows = [reader.row((f"{above} / {below}", kind, shape_text((1, shape[1]))), 2 * order + rank,
                       ("forward", shape, f"{kind}-row_{above}"), ("forward", shape, f"{kind}-row_{below}"))
            for order, (above, below, kind) in enumerate((("prepared", "plain", "f32"),
                                                          ("prepared", "descriptor", "bf16"),
                                                          ("descriptor", "plain", "f32")))
            for rank, shape in reader.shapes("prepared")]
    return Block(
        "Time of a call for each row: prepared, by the descriptor, or a plain one, which takes floats only.", rows)


def blocks(found, isa):
    """{set: Block} of what was measured."""
    reader = Reader(found, isa)
    made = {block.__name__: block(reader) for block in (types, residual, int8, executor, prepared)}
    for block in made.values():
        block.rows = [row for row in block.rows if row.spreads]
    return {name: block for name, block in made.items() if block.rows}


def are_all(found):
    """Whether a run has measured nothing but what engines need."""
    return not found.main_shapes and not all(map(results.is_ordinary, found.times))


# ---- On the terminal -------------------------------------------------------------------------------------------------


def chosen(listed, room):
    """The most important rows of some blocks, so many in all, in their order: from each block the same number."""
    queues = [sorted(block.rows, key=lambda row: row.rank) for block in listed]
    taken = []
    while room > len(taken) and any(queues):
        for queue in queues:
            if queue and room > len(taken):
                taken.append(queue.pop(0))
    return [row for block in listed for row in block.rows if any(row is one for one in taken)]


def ratio_text(spread):
    """A ratio; a question mark if the rounds do not settle it."""
    if not spread:
        return "- "
    digits = 2 if spread.median < 100 else 0
    return f"{spread.median:.{digits}f}{'?' if verdict(spread) == 'unclear' else ' '}"


def lines(found, isa, room):
    """At most so many lines of 80 columns."""
    listed = list(blocks(found, isa).values())
    if not listed or room < 3:
        return []
    threads = "one thread" if found.threads == 1 else f"{found.threads} threads"
    widths = {name: max(7, len(title(name)) + 1) for name in CORE}
    left = WIDTH - sum(widths.values())

    def line(label, texts):
        return (label[:left].ljust(left) + "".join(texts)).rstrip()

    count = sum(len(block.rows) for block in listed)
    rows = chosen(listed, room - 1 if count < room else room - 2)
    left_out = count - len(rows)
    return [line(f"Time / time ({isa}, {threads})", (title(name).rjust(width) for name, width in widths.items())),
            *(line(row.label(), (ratio_text(row.spreads.get(name)).rjust(width) for name, width in widths.items()))
              for row in rows),
            *([f"{left_out} more of these stand in the report."] if left_out else [])]


# ---- In the report ---------------------------------------------------------------------------------------------------


# What the most important ratios of each set are.
SAID = {"types": "bfloat16 takes {times} as long as floats",
        "residual": "A residual in the call takes {times} as long as an add and a call",
        "int8": "y of 8 bits with scales of rows takes {times} as long as y of floats",
        "executor": "{threads} threads take {times} as long as one",
        "prepared": "A prepared call takes {times} as long as a plain one"}


def times_text(row):
    """The median of the norms."""
    return f"{statistics.median(spread.median for spread in row.spreads.values()):.2f} times"


def where(row):
    return f"({' '.join(row.words[1:])})"


def answer(found, isa):
    """A sentence for each set that was measured: the two rows that matter most, the median of the norms."""
    said = []
    for name, block in blocks(found, isa).items():
        first, *others = sorted(block.rows, key=lambda row: row.rank)
        second = next((row for row in others if row.words[0] == first.words[0]), None)
        sentence = SAID[name].format(threads=found.context.get("threads of the executor", "?"), times=times_text(first))
        other = f", and {times_text(second)} {where(second)}" if second else ""
        said.append(f"{sentence} {where(first)}{other}.")
    return " ".join(said) + (" Each figure is the median of the norms." if said else "")


def ratio_cell(spread):
    if not spread:
        return "-"
    kind = {"faster": "gain", "slower": "loss"}.get(verdict(spread), verdict(spread))
    return Cell(ratio_text(spread).strip(), kind, f"half of the rounds: {spread.low:.2f} to {spread.high:.2f}")


def ratio_tables(found, isa):
    """The table of each block."""
    made = []
    for name, block in blocks(found, isa).items():
        norms = [norm for norm in Reader(found, isa).operations if any(norm in row.spreads for row in block.rows)]
        labels = max(len(row.words) for row in block.rows)
        head = ["time / time", *[""] * (labels - 1), *map(title, norms)]
        made.append(Table(f"{TITLES[name]}, {isa}", block.note, head,
                          [[*row.words, *(ratio_cell(row.spreads.get(norm)) for norm in norms)] for row in block.rows],
                          labels))
    return made


def structure_table(found, isa):
    """What it is worth to know the scale of all rows before looking at them."""
    reader = Reader(found, isa)
    rows = []
    for reduction, elementwise in PAIRS:
        for kind in ("f32", "bf16"):
            for _, shape in reader.shapes("int8"):
                spreads = [found.ratio([reader.case(elementwise, "forward", shape, f"{kind}{above}")],
                                       [reader.case(reduction, "forward", shape, f"{kind}{below}")])
                           for above, below in (("", ""), ("-i8_given", "-i8_rows"))]
                if all(spreads):
                    rows.append([f"{title(elementwise)} / {title(reduction)}", kind, shape_text(shape),
                                 *map(ratio_cell, spreads)])
    return Table(f"To 8 bits without looking at the row, {isa}",
                 "Time of a norm whose scale follows from its parameters / time of one that needs a scale for each "
                 "row; beside it the same two norms with y of the type of x.",
                 ["time / time", "x", "shape", "y as x", "y of 8 bits"], rows, 3)


def rate_cell(found, case):
    """Billions of elements a second, and GB/s; where each row is a call, nanoseconds a call."""
    time = found.time(case)
    if not time:
        return "-"
    if case.way.startswith("row_"):
        return f"{time.median / case.tokens:.0f}"
    return f"{case.tokens * case.channels / time.median:.2f} ({found.bytes_per_second(case) / 1e9:.1f})"


def rate_table(found, name, direction):
    """The speeds of all kinds of calls of a set, on each instruction set."""
    shapes = found.reasons.get(name, [])
    cases = [case for case in found.times if case.isa in found.isas and case.direction == direction
             and results.shape_of(case) in shapes and in_set(case, name)]
    rows = [[title(operation), kind if mode == "portable" else f"{kind}, {mode}", isa,
             *(rate_cell(found, Case(operation, direction, isa, mode, *shape, *kind_parts(kind))) for shape in shapes)]
            for operation, kind, isa, mode in dict.fromkeys((case.operation, results.kind(case), case.isa, case.mode)
                                                            for case in cases)]
    note = ("Nanoseconds a call, in a tensor that is in the nearest caches." if name == "prepared" else
            "Billions of elements a second, and in brackets GB/s of what is read and written at least.")
    return Table(f"{TITLES[name]} in figures, {direction}", note,
                 ["operation", "call", "instruction set", *map(shape_text, shapes)], rows, 3)


def in_set(case, name):
    return case.way in WAYS[name]


def kind_parts(kind):
    type_, _, way = kind.partition("-")
    return type_, way


def peer_cell(found, isa, case):
    if case in found.errors:
        return found.errors[case].partition(":")[0]
    spread = found.ratio([case], [case._replace(isa=isa, mode="portable")])
    if not spread:
        return "-"
    kind = "behind" if spread.median < 1 / NOTABLE else ""
    return Cell(f"{spread.median:.2f}{'?' if spread.is_wide() else ''}", kind,
                f"half of the rounds: {spread.low:.2f} to {spread.high:.2f}")


def peer_table(found, isa):
    """Others in 16 bits."""
    shapes = found.reasons.get("types", [])
    others = dict.fromkeys((case.operation, case.direction, case.type, case.mode)
                           for case in [*found.times, *found.errors]
                           if results.is_peer(case) and case.type in HALVES)
    rows = [[f"{title(operation)} {direction}", kind, peer,
             *(peer_cell(found, isa, Case(operation, direction, "peer", peer, *shape, kind)) for shape in shapes)]
            for operation, direction, kind, peer in sorted(others, key=lambda one: list(OPERATIONS).index(one[0]))]
    within = " and ".join(f"{found.context.get(f'peer tolerance, {kind}', '?')} in {kind}" for kind in HALVES)
    return Table(f"Compared with others in 16 bits, {isa}",
                 "Time of the other / time of this library with the same type, portable: above 1 this library is "
                 f"faster. Each is first checked to compute what this library does, within {within} of the largest "
                 "result of each tensor: the last digits differ where another rounds in between.",
                 ["operation", "type", "by", *map(shape_text, shapes)], rows, 3)


def tables(found, isa):
    """All figures."""
    measured = [name for name in SETS if name in found.reasons]
    return [*([peer_table(found, isa)] if isa else []),
            *(rate_table(found, name, direction) for name in measured for direction in DIRECTIONS)]
