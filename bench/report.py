#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Writes the report of a run: report.md, report.html and, for the terminal, a summary.

usage: bench/report.py DIR    reads DIR/results.json, as bench/run left it, and writes DIR/report.md and DIR/report.html

Every figure in the report was measured, and every sentence about the figures is derived from them here.
"""
import json
import pathlib
import sys

import compare
import pages
import plots
import probes
import results
from operations import CORE, ELEMENTWISE, PAIRS, REDUCTIONS, title
from results import Case
from pages import Heading, Items, More, Paragraph, Plots, Table

MODES = ("portable", "native")
DIRECTIONS = ("forward", "backward")

# The least ratio of two times that the report calls a difference.
NOTABLE = 1.05
# If two norms are equally fast, one of them still is the faster in all of n rounds with a probability of 2^(1 - n).
ENOUGH_ROUNDS = 4
# Up to BANDWIDTH times the limit, bandwidth decides; from COMPUTATION times on, whatever else a norm does. A time below
# TOO_GOOD times the limit shows that the limit was none there.
BANDWIDTH, COMPUTATION, TOO_GOOD = 1.3, 2.0, 0.9


def shape_text(shape):
    return f"{shape[0]} x {shape[1]}"


def join(words, last="and"):
    words = list(words)
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def megabytes(count):
    """A number of bytes in KB or MB of 1024 and 1024^2, as sizes of caches are given."""
    if count < 1 << 20:
        return f"{count / (1 << 10):.0f} KB"
    return f"{count / (1 << 20):.1f} MB" if count < 10 << 20 else f"{count / (1 << 20):.0f} MB"


def cases(found, operation, directions, isa, mode, shape):
    """The cases that run when an operation is called in a mode. A mode without a kernel runs the portable one."""
    kernels = {(case.operation, case.direction, case.mode) for case in found.times}
    return [Case(operation, direction, isa, mode if (operation, direction, mode) in kernels else "portable", *shape)
            for direction in directions]


# ---- The answer ------------------------------------------------------------------------------------------------------


def advantage(found, pair, directions, isa, mode, shape):
    """The Spread of time(norm with a reduction) / time(elementwise norm), or None. Above 1 the elementwise one wins."""
    reduction, elementwise = pair
    below = cases(found, elementwise, directions, isa, mode, shape)
    if all(case.mode != mode for case in below):
        return None
    return found.ratio(cases(found, reduction, directions, isa, mode, shape), below)


def verdict(spread):
    """"wins" or "loses" if every round says so; "level"; or "unclear" if the rounds disagree or are too few."""
    if spread.rounds < ENOUGH_ROUNDS:
        return "unclear"
    if spread.median >= NOTABLE:
        return "wins" if spread.least > 1 else "unclear"
    if spread.median <= 1 / NOTABLE:
        return "loses" if spread.most < 1 else "unclear"
    return "unclear" if spread.is_wide() else "level"


def figure_cell(spread, kind, unclear=False):
    """A cell with the median, a question mark if the rounds disagree, and the quartiles as a hint."""
    return pages.Cell(f"{spread.median:.2f}{'?' if unclear or spread.is_wide() else ''}", kind,
                      f"half of the rounds: {spread.low:.2f} to {spread.high:.2f}")


def ratio_cell(spread):
    return figure_cell(spread, verdict(spread), verdict(spread) == "unclear") if spread else "-"


def is_sure(spread):
    """Whether a figure is shown without a question mark."""
    return verdict(spread) != "unclear" and not spread.is_wide()


def times_text(spread):
    """How many times as fast the faster of the two is."""
    return f"{max(spread.median, 1 / spread.median):.2f}"


def direction_title(directions):
    return "both" if len(directions) > 1 else directions[0]


def answer_table(found, isa):
    rows = []
    for pair in PAIRS:
        for mode in MODES:
            for directions in (("forward",), ("backward",), DIRECTIONS):
                spreads = [advantage(found, pair, directions, isa, mode, shape) for shape in found.main_shapes]
                if any(spreads):
                    rows.append([f"{title(pair[0])} / {title(pair[1])}", mode, direction_title(directions),
                                 *map(ratio_cell, spreads)])
    return Table(["time(...) / time(...)", "mode", "pass", *map(shape_text, found.main_shapes)], rows, 3)


def comparisons(found, isa):
    """[(pair, direction, mode, shape, Spread)] of all pairs that were measured at the main shapes."""
    listed = [(pair, direction, mode, shape, advantage(found, pair, (direction,), isa, mode, shape))
              for pair in PAIRS for mode in MODES for direction in DIRECTIONS for shape in found.main_shapes]
    return [entry for entry in listed if entry[-1]]


def pair_sentence(compared, pair, mode):
    """A sentence on where an elementwise norm wins and loses against a norm with a reduction."""
    parts = []
    for direction in DIRECTIONS:
        here = [(shape, spread) for other, way, kind, shape, spread in compared
                if (other, way, kind) == (pair, direction, mode)]
        if not here:
            continue
        said = []
        for outcome, word, best in (("wins", "faster", max), ("loses", "slower", min)):
            group = [entry for entry in here if verdict(entry[1]) == outcome]
            if not group:
                continue
            most = best(group, key=lambda entry: entry[1].median)
            where = "everywhere" if len(group) == len(here) else "at " + join(shape_text(shape) for shape, _ in group)
            said.append(f"{word} {where}" + (f", by a factor of up to {times_text(most[1])} ({shape_text(most[0])})"
                                             if len(group) > 1 else f", by a factor of {times_text(most[1])}"))
        for outcome, word in (("level", "level"), ("unclear", "unclear, since the rounds disagree or are too few,")):
            group = [shape for shape, spread in here if verdict(spread) == outcome]
            if group:
                said.append(f"{word} " + ("everywhere" if len(group) == len(here)
                                          else "at " + join(map(shape_text, group))))
        parts.append(f"{direction} {'; '.join(said)}")
    return f"{title(pair[1])} against {title(pair[0])}, {mode}: {'. '.join(parts)}." if parts else ""


def limit_range(found, cases_to_range):
    """(least, most) of the medians of time over limit. None if there are none, if one is below TOO_GOOD, or if not all
    threads had work in a case, since its limit may have used them all."""
    if any(found.busy_threads.get(case, found.threads) < found.threads for case in cases_to_range):
        return None
    medians = [found.time_over_limit(case).median for case in cases_to_range if case in found.over_limit]
    return (min(medians), max(medians)) if medians and min(medians) >= TOO_GOOD else None


def bandwidth_of(found, shape):
    """The bandwidth that a forward pass needs: of the smallest cache that holds its two tensors, or of the memory."""
    caches, size = data_caches(found), 2 * 4 * shape[0] * shape[1]
    if not caches:
        return "bandwidth"
    for level, cache in sorted(caches.items()):
        # Each thread keeps its share of the rows in its own cache. Most of a shared cache may be in use by others: a
        # virtual machine sees the whole of a cache that it shares with its neighbours.
        own = cache.get("num_sharing", 1) <= 1
        if (size / found.threads if own else size) <= cache["size"]:
            return f"bandwidth of the L{level} cache" + ("" if own else " or of the memory")
    return "bandwidth of the memory"


def bandwidth_sentence(found, shapes, singular, plural):
    """A sentence that says what the bandwidth does at these shapes; the verb comes in singular and plural."""
    groups = {}
    for shape in shapes:
        groups.setdefault(bandwidth_of(found, shape), []).append(shape_text(shape))
    parts = [f"at {join(texts)} the {bandwidth}" for bandwidth, texts in groups.items()]
    return f"A{join(parts)[1:]} {plural if len(parts) > 1 else singular}"


def range_text(least, most):
    return f"{least:.1f}" if f"{least:.1f}" == f"{most:.1f}" else f"{least:.1f} to {most:.1f}"


FUNCTIONS = {"dyt": "tanh", "dyisru": "1 / sqrt"}


def binding_sentences(found, compared, isa):
    """Sentences on what decides when all norms are level, and when an elementwise norm's forward pass loses or wins."""
    sentences = []
    bound = []
    for shape in found.main_shapes:
        limits = limit_range(found, [Case(operation, "forward", isa, mode, *shape) for operation in CORE
                                     for mode in MODES])
        if limits and limits[1] <= BANDWIDTH:
            bound.append((shape, limits[1]))
    if bound:
        sentences.append(f"{bandwidth_sentence(found, [shape for shape, _ in bound], 'binds', 'bind')}: no norm's "
                         f"forward pass takes more than {max(most for _, most in bound):.2f} times as long as the "
                         f"copy, so that the choice of norm matters little there.")
    for elementwise, function in FUNCTIONS.items():
        for outcome, word in (("loses", "slower"), ("wins", "faster")):
            group = [(mode, pair, shape) for pair, direction, mode, shape, spread in compared
                     if pair[1] == elementwise and direction == "forward" and verdict(spread) == outcome
                     and limit_range(found, [Case(elementwise, "forward", isa, mode, *shape),
                                             Case(pair[0], "forward", isa, "portable", *shape)])]
            own = limit_range(found, [Case(elementwise, "forward", isa, mode, *shape) for mode, _, shape in group])
            other = limit_range(found, [Case(pair[0], "forward", isa, "portable", *shape) for _, pair, shape in group])
            if not own or not other:
                continue
            sentences.append(f"Where {title(elementwise)}'s forward pass is {word}, it takes {range_text(*own)} times "
                             f"as long as the copy, and the norm with the reduction {range_text(*other)} times.")
            limits = {shape: limit_range(found, [Case(elementwise, "forward", isa, mode, *shape)
                                                 for mode, _, other_shape in group if other_shape == shape])
                      for shape in dict.fromkeys(shape for _, _, shape in group)}
            far = [shape_text(shape) for shape, (least, _) in limits.items() if least >= COMPUTATION]
            near = [shape for shape, (_, most) in limits.items() if most <= BANDWIDTH]
            if outcome == "loses" and far:
                sentences.append(f"At {join(far)} it is computation that binds it: {function} costs more there than "
                                 f"the second pass over a row that it saves.")
            elif outcome == "wins" and near:
                sentences.append(bandwidth_sentence(found, near, "is all that holds it.", "are all that hold it."))
    return sentences


def answer_words(found):
    """The answer in one paragraph."""
    isa = found.isas[0] if found.isas else None
    compared = comparisons(found, isa)
    if not compared:
        return (f"This run has no figures to compare an elementwise norm ({', '.join(ELEMENTWISE)}) with one that "
                f"needs a reduction ({', '.join(REDUCTIONS)}): its selection has only one of the two kinds.")
    counts = {outcome: sum(verdict(entry[-1]) == outcome for entry in compared)
              for outcome in ("wins", "loses", "level", "unclear")}
    sentences = [f"On this machine, with {isa} and {found.threads} thread{'s'[:found.threads > 1]}, an elementwise "
                 f"norm ({', '.join(map(title, ELEMENTWISE))}) is faster than a norm with a reduction "
                 f"({', '.join(map(title, REDUCTIONS))}) in {counts['wins']} of {len(compared)} comparisons, slower "
                 f"in {counts['loses']}, level (within {NOTABLE - 1:.0%}) in {counts['level']}, and in "
                 f"{counts['unclear']} the rounds disagree or are too few to say."]
    for outcome, word in (("wins", "faster"), ("loses", "slower")):
        mostly = [shape for shape in found.main_shapes
                  if 2 * sum(verdict(entry[-1]) == outcome for entry in compared if entry[3] == shape)
                  > sum(entry[3] == shape for entry in compared)]
        if mostly:
            sentences.append(f"It is {word} in most of those at {join(map(shape_text, mostly))}.")
    for outcome, text, best in (("wins", "At best, {0} ({1}, {2}) is {3} times as fast as {4}, at {5}.", max),
                                ("loses", "At worst, {0} ({1}, {2}) takes {3} times as long as {4}, at {5}.", min)):
        group = [entry for entry in compared if verdict(entry[-1]) == outcome and is_sure(entry[-1])]
        if group:
            pair, direction, mode, shape, spread = best(group, key=lambda entry: entry[-1].median)
            sentences.append(text.format(title(pair[1]), direction, mode, times_text(spread), title(pair[0]),
                                         shape_text(shape)))
    return " ".join(sentences + binding_sentences(found, compared, isa))


def answer(found):
    blocks = [Heading(2, "The answer"), Paragraph(answer_words(found))]
    if not found.isas:
        return blocks
    explanation = ("Time of the norm with the reduction, divided by that of the elementwise norm, at tokens x "
                   "channels: above 1 the elementwise norm is faster. \"both\" is a forward and a backward pass. The "
                   "mode is the elementwise norm's; the norms with a reduction have one mode. A question mark: the "
                   "rounds are too few, disagree, or agree only in which is faster: half of them spread over more than "
                   "15 % of the median. One is called faster or slower only where every round says so.")
    for number, isa in enumerate(found.isas):
        table, drawn = answer_table(found, isa), plots.answer(found, isa, advantage)
        if not table.rows and not drawn.wanted:
            continue
        shown = [Heading(3, f"On {isa}"), Paragraph(explanation), table, Plots(drawn)]
        if number == 0 and not drawn.wanted:
            shown.append(Paragraph("There are no plots: they are of series of sizes and of channels, which this "
                                   "selection of cases leaves out. bench/run without options measures them."))
        blocks += shown if number == 0 else [More(f"On {isa}", shown[2:])]
    compared = comparisons(found, found.isas[0])
    said = [text for pair in PAIRS for mode in MODES if (text := pair_sentence(compared, pair, mode))]
    if said:
        blocks.append(More(f"Pair by pair, in words, on {found.isas[0]}", [Items(said)]))
    return blocks


# ---- Time over the limit ---------------------------------------------------------------------------------------------


def kernels_of(found, direction, isa):
    """[(operation, mode)] of the kernels of an instruction set, in the order in which they were measured."""
    return list(dict.fromkeys((case.operation, case.mode) for case in found.times
                              if case.isa == isa and case.direction == direction))


def limit_cell(spread):
    if spread is None:
        return "-"
    return figure_cell(spread, "near" if spread.median <= BANDWIDTH else "far" if spread.median >= COMPUTATION else "")


def limit_rows(found, direction):
    """Rows with the limits themselves, in GB/s."""
    names = dict.fromkeys(case.operation for case in found.times
                          if results.is_limit(case) and case.direction == direction)
    for name in names:
        speeds = [found.bytes_per_second(Case(name, direction, None, None, *shape)) for shape in found.main_shapes]
        yield [name.replace("_", " ") + ", GB/s", "", *(f"{speed / 1e9:.1f}" if speed else "-" for speed in speeds)]


def over_limits(found):
    if not found.isas:
        return []
    isa = found.isas[0]
    blocks = [Heading(2, "How near to the machine's limit"),
              Paragraph(f"Time divided by that of the limit of the same shape and round, on {isa}. The limit is the "
                        f"faster of a plain and a non-temporal copy (forward: x is read, y is written) or sum z = x + "
                        f"y (backward: dy and x are read, dx is written). Up to {BANDWIDTH} times the limit, bandwidth "
                        f"binds, that of the cache or of the memory where the tensors are; from {COMPUTATION:.0f} "
                        f"times on, what the norm does besides moving the data: computing, and going over a row twice. "
                        f"Below 1 the norm was faster than the limit, which is none there. The first rows are the "
                        f"limits' own speeds.")]
    for direction in DIRECTIONS:
        rows = list(limit_rows(found, direction))
        for operation, mode in kernels_of(found, direction, isa):
            spreads = [found.time_over_limit(Case(operation, direction, isa, mode, *shape))
                       for shape in found.main_shapes]
            if any(spreads):
                rows.append([title(operation), mode, *map(limit_cell, spreads)])
        blocks += [Heading(3, direction.capitalize()),
                   Table(["operation", "mode", *map(shape_text, found.main_shapes)], rows, 2)]
    blocks += [Plots(plots.limits(found, isa))]
    measured = {results.shape_of(case) for case in found.times}
    caches = [(reason, shape) for reason in ("L1", "L2", "L3", "beyond the caches")
              for shape in found.reasons.get(reason, []) if shape in measured]
    if caches:
        rows = [[title(operation), direction,
                 *(limit_cell(found.time_over_limit(Case(operation, direction, isa, "portable", *shape)))
                   for _, shape in caches)] for direction in DIRECTIONS for operation in CORE]
        heads = [f"{reason}: {shape_text(shape)}, {megabytes(3 * 4 * shape[0] * shape[1])}" for reason, shape in caches]
        blocks += [Heading(3, "By cache"),
                   Paragraph("The same, portable, at shapes sized from this machine's caches: three tensors take half "
                             "of a cache, and twice the last one beyond the caches. " + cache_note(found)),
                   Table(["operation", "pass", *heads], rows, 2)]
    return blocks


def data_caches(found):
    return {cache["level"]: cache for cache in found.context.get("caches", []) if cache["type"] != "Instruction"}


def cache_note(found):
    """Sentences on caches that differ from those for which the shapes were sized."""
    notes = []
    caches = data_caches(found)
    third = caches.get(3)
    for shape in found.reasons.get("L3", []):
        if third and 3 * 4 * shape[0] * shape[1] < 0.4 * third["size"]:
            notes.append(f"This system reports an L3 cache of {megabytes(third['size'])}, of which a share was counted "
                         f"on: others may use it too.")
    last = caches[max(caches)] if caches else None
    for shape in found.reasons.get("beyond the caches", []):
        if last and 3 * 4 * shape[0] * shape[1] < 1.5 * last["size"]:
            notes.append("Twice the last cache would take more memory than was thought bearable: what is called beyond "
                         "the caches may still be partly inside.")
    return " ".join(notes)


# ---- Instruction sets ------------------------------------------------------------------------------------------------


def isa_cell(found, case, scalar):
    speed, factor = found.bytes_per_second(case), found.ratio([scalar], [case])
    if not speed:
        return "-"
    return f"{speed / 1e9:.1f}" + (f" ({factor.median:.1f}x)" if factor and case.isa != "scalar" else "")


def narrower_wins(found):
    """Sentences on where a narrower instruction set is faster than a wider one."""
    said = []
    for wide, narrow in zip(found.isas, found.isas[1:]):
        groups = {}
        for case in found.times:
            if case.isa != wide:
                continue
            spread = found.ratio([case], [case._replace(isa=narrow)])
            if spread and verdict(spread) == "wins":
                groups.setdefault((case.operation, case.direction, case.mode), []).append((spread.median, case))
        for (operation, direction, mode), members in groups.items():
            most, where = max(members)
            shapes = "" if len(members) == 1 else f"at {len(members)} shapes, most "
            said.append(f"{title(operation)} {direction}, {mode}: {narrow} is faster than {wide} {shapes}at "
                        f"{shape_text(results.shape_of(where))}, by a factor of {most:.2f}.")
    return said


def isa_tables(found):
    if not found.isas:
        return []
    scalar = f" \"scalar\" is {found.context['scalar']}." if "scalar" in found.context else ""
    blocks = [Heading(2, "Instruction sets"),
              Paragraph("GB/s of x read and y written (forward), of dy and x read and dx written (backward), and in "
                        f"brackets how many times as fast as scalar.{scalar} One arithmetic, written once, is compiled "
                        f"for each instruction set.")]
    for direction in DIRECTIONS:
        rows = []
        for operation, mode in dict.fromkeys(kernel for isa in found.isas
                                             for kernel in kernels_of(found, direction, isa)):
            for isa in found.isas:
                listed = [Case(operation, direction, isa, mode, *shape) for shape in found.main_shapes]
                if any(case in found.times for case in listed):
                    rows.append([title(operation), mode, isa,
                                 *(isa_cell(found, case, case._replace(isa="scalar")) for case in listed)])
        if rows:
            blocks += [Heading(3, direction.capitalize()),
                       Table(["operation", "mode", "ISA", *map(shape_text, found.main_shapes)], rows, 3)]
    said = narrower_wins(found)
    if len(found.isas) > 1:
        blocks += [Heading(3, "Where a narrower instruction set is faster than a wider one"),
                   Items(said) if said else Paragraph("Nowhere in every round.")]
    return blocks


# ---- Peers -----------------------------------------------------------------------------------------------------------


def peer_cell(found, case, isa):
    if case in found.errors:
        return found.errors[case].partition(":")[0]
    spread = found.ratio([case], [case._replace(isa=isa, mode="portable")])
    return figure_cell(spread, "") if spread else "-"


def peers_table(found, cell):
    """A table with a row for each peer and each of its kernels. cell(case) is the text of a cell."""
    others = [case for case in [*found.times, *found.errors] if results.is_peer(case)]
    rows = []
    for operation, direction, mode in dict.fromkeys((case.operation, case.direction, case.mode) for case in others):
        cells = [cell(Case(operation, direction, "peer", mode, *shape)) for shape in found.main_shapes]
        rows.append([f"{title(operation)} {direction}", mode, *cells])
    rows.sort(key=lambda row: row[0])
    return Table(["operation", "by", *map(shape_text, found.main_shapes)], rows, 2)


ALONE = "GB/s of the others, since no instruction set of this library was measured beside them:"


def alone_table(found):
    """A table of the peers' own speeds, for a run in which there is nothing to compare them with."""
    def cell(case):
        speed = found.bytes_per_second(case)
        return f"{speed / 1e9:.1f}" if speed else found.errors.get(case, "-").partition(":")[0]

    return peers_table(found, cell)


def peers(found):
    blocks = [Heading(2, "Compared with others"), Items([f"{name}: {text}" for name, text in found.peers.items()])]
    if not found.isas:
        table = alone_table(found)
        return blocks + ([Paragraph(ALONE), table] if table.rows else [])
    isa = found.isas[0]
    table = peers_table(found, lambda case: peer_cell(found, case, isa))
    if not table.rows:
        return blocks + [Paragraph("None was measured" + (": they run in one thread." if found.threads > 1 else "."))]
    blocks += [Paragraph(f"Time of the other divided by that of this library, portable, on {isa}: above 1 this library "
                         f"is faster. Each is first checked to compute what this library does, within "
                         f"{found.context.get('peer tolerance', '?')} of the largest result of each tensor; one that "
                         f"does not is shown as wrong, and not compared."),
               table]
    wrong = [f"{title(case.operation)} {case.direction} by {case.mode}, {shape_text(results.shape_of(case))}: {why}"
             for case, why in found.errors.items() if results.is_peer(case)]
    return blocks + ([Items(wrong)] if wrong else [])


def one_token(found):
    return probes.calls(found.one_token) if found.one_token else []


# ---- Models ----------------------------------------------------------------------------------------------------------


def models(found):
    names = [reason for reason in found.reasons
             if reason not in ("main", "size", "channels", "L1", "L2", "L3", "beyond the caches")]
    if not names or not found.isas:
        return []
    isa = found.isas[0]
    blocks = [Heading(2, "The norms of some models"),
              Paragraph(f"Nanoseconds for one token, portable, on {isa}, at the width of each model's norms, whichever "
                        f"norm it has; and in the native mode, where that differs.")]
    columns = [(operation, mode) for operation in CORE for mode in MODES
               if any(case.operation == operation and case.mode == mode for case in found.times)]
    for direction in DIRECTIONS:
        rows = []
        for name in names:
            for shape in found.reasons[name]:
                times = [found.time(Case(operation, direction, isa, mode, *shape)) for operation, mode in columns]
                if any(times):
                    rows.append([name, shape_text(shape),
                                 *(f"{time.median / shape[0]:.0f}" if time else "-" for time in times)])
        if rows:
            blocks += [Heading(3, direction.capitalize()),
                       Table(["model", "shape", *(title(operation) + (", native" if mode == "native" else "")
                                                  for operation, mode in columns)], rows, 2)]
    return blocks if len(blocks) > 2 else []


# ---- The run ---------------------------------------------------------------------------------------------------------


def header(found):
    context = found.context
    caches = [f"L{cache['level']} {megabytes(cache['size'])}" + (f" for {cache['num_sharing']} processors"
                                                                 if cache.get("num_sharing", 1) > 1 else "")
              for cache in data_caches(found).values()]
    loads = context.get("load_avg") or []
    rows = [["date", context.get("date", "")],
            ["CPU", context.get("cpu", "")],
            ["processors", f"{context.get('num_cpus', '?')} at {context.get('mhz_per_cpu', '?')} MHz nominally"],
            ["caches", join(caches) if caches else "not known"],
            ["instruction sets", context.get("isas", "").replace(" ", ", ")],
            ["threads", str(found.threads)],
            ["frequency governor", context.get("governor", "")],
            ["load average at the start", ", ".join(f"{load:.2f}" for load in loads) or "not known"],
            ["libdynnorm", context.get("dynnorm version", "")],
            ["compiler", context.get("compiler", "")],
            ["the kernels' flags", context.get("compiler flags", "")],
            ["tensors", "each begins at a page; where rows do not begin at multiples of 64 bytes, a dx, or a y of less "
                        "than 256 channels, is not stored past the caches"],
            ["scalar", context.get("scalar", "")],
            ["measured", f"{len(found.times)} cases of the {context.get('set', '')} set, {found.rounds} rounds, "
                         f"{context.get('options', '')}"]]
    return Table(["", ""], [row for row in rows if row[1]], 2)


def load_warning(found):
    loads = found.context.get("load_avg") or [0]
    if loads[0] > 0.5:
        return (f"When it began, the machine's load average was {loads[0]:.2f}: other programs, or a build that had "
                f"just ended, may have disturbed it. ")
    return ""


def rounds_warning(found):
    if found.rounds < ENOUGH_ROUNDS:
        return (f"{found.rounds} round{'s'[:found.rounds > 1]} cannot tell a difference from noise: nothing is called "
                f"faster or slower with fewer than {ENOUGH_ROUNDS}. ")
    return ""


def wide_cases(found):
    """([(relative spread, case)] of the cases whose rounds disagree too much, widest first; the number of cases)."""
    judged = [(case, found.time_over_limit(case)) for case in found.over_limit if not results.is_limit(case)]
    return (sorted(((spread.relative, case) for case, spread in judged if spread.is_wide()), reverse=True),
            len(judged))


def splitting(found):
    """Blocks on how several threads share the work, and on where some of them have none."""
    if found.threads == 1:
        return []
    text = (f"Each of the {found.threads} threads takes one piece of each tensor, as equal as they can be cut: the "
            f"limits are cut between any two cache lines, forward passes between rows, backward passes between blocks "
            f"of rows, of whose sums the calling thread makes the gradients at the end. So a norm's pieces may be less "
            f"equal than its limit's.")
    few = {}
    for case, busy in found.busy_threads.items():
        if busy < found.threads:
            what = "the limits" if results.is_limit(case) else case.direction
            few.setdefault((what, results.shape_of(case)), set()).add(busy)
    return [Heading(3, "How the work was split"), Paragraph(text),
            *([Paragraph(f"Not all {found.threads} threads had work in these cases:"),
               Items([f"{what} at {shape_text(shape)}: {join(map(str, sorted(busy)), 'or')}"
                      for (what, shape), busy in few.items()])] if few else [])]


def reliability(found):
    wide, judged = wide_cases(found)
    blocks = [Heading(2, "How far to trust this")]
    text = load_warning(found) + rounds_warning(found)
    if wide:
        text += (f"In {len(wide)} of {judged} cases the middle half of the rounds spreads over more than 15 % "
                 f"of the median: too wide to conclude from. They are marked by a question mark; the widest are:")
    elif not judged:
        text += ("How far the rounds spread is judged by the multiples of the limits, and no limit was measured beside "
                 "the cases: the selection left the limits out.")
    else:
        text += f"In none of {judged} cases does the middle half of the rounds spread over more than 15 %."
    blocks.append(Paragraph(text))
    if wide:
        shown = [f"{results.name_of(case)}: {relative:.0%}" for relative, case in wide[:12]]
        blocks.append(Items(shown + ([f"and {len(wide) - 12} more, see results.csv"] if len(wide) > 12 else [])))
    halves = {case: found.halves_differ(case) for case in found.times if not results.is_limit(case)}
    if found.rounds >= ENOUGH_ROUNDS and halves:
        blocks.append(Paragraph(compare.summarize(halves, "The medians of the even rounds and of the odd ones")[0]))
    clock = "by the wall clock" if found.threads > 1 else "the CPU's, for one thread"
    blocks.append(Paragraph(
        f"Each round goes over all cases, shape by shape, the limits beside the cases that are compared with them. "
        f"Times are {clock}. What compares two cases is computed round by round; the figures are medians over the "
        f"rounds. Forward keeps no statistics, as in inference; backward has those that forward left, a workspace that "
        f"is kept, and computes all gradients. x and dy are normally distributed; the output is written beside them, "
        f"not in place."))
    if found.context.get("set") != "full":
        blocks.append(Paragraph(f"A dash stands for what this selection does not measure: most of plain C for tensors "
                                f"of more than 4 MB, and, away from the main shapes, the "
                                f"{title('centered_dyisru')}, the sleef mode and the others' code. bench/run --full "
                                f"measures it all."))
    return blocks + splitting(found)


def compose(found):
    return [Heading(1, "libdynnorm on this machine"), header(found), *answer(found), *over_limits(found),
            *isa_tables(found), *peers(found), *one_token(found), *models(found), *reliability(found)]


def summary(found, folder):
    """The text that the terminal shows at the end."""
    lines = [answer_words(found), ""]
    if found.isas and found.main_shapes:
        rows = []
        for pair in PAIRS:
            for mode in MODES:
                for direction in DIRECTIONS:
                    spreads = [advantage(found, pair, (direction,), found.isas[0], mode, shape)
                               for shape in found.main_shapes]
                    if any(spreads):
                        rows.append([f"{title(pair[0])} / {title(pair[1])}", direction, mode,
                                     *(f"{spread.median:.2f}{'' if is_sure(spread) else '?'}" if spread else "-"
                                       for spread in spreads)])
        if rows:
            table = Table(["", "", "", *map(shape_text, found.main_shapes)], rows, 3)
            lines += [f"Time of the norm with the reduction over that of the elementwise norm, {found.isas[0]} "
                      "(?: the rounds disagree or spread):", "",
                      *pages.aligned(table), ""]
    if not found.isas and alone_table(found).rows:
        lines += [ALONE, "", *pages.aligned(alone_table(found)), ""]
    wide, judged = wide_cases(found)
    warning = load_warning(found) + rounds_warning(found)
    if wide:
        warning += f"In {len(wide)} of {judged} cases the rounds disagree too much to conclude."
    if not judged:
        warning += "No limit was measured beside the cases: how far the rounds spread is not judged."
    if warning:
        lines += [f"Warning: {warning.strip()}", ""]
    lines.append(f"The whole report: {folder / 'report.html'} (or report.md); the figures: results.json and "
                 f"results.csv there.")
    return "\n".join(pages.wrapped(lines))


def write(found, folder):
    """Writes report.md and report.html. Returns the summary."""
    blocks = compose(found)
    (folder / "report.md").write_text(pages.markdown(blocks), encoding="utf-8")
    (folder / "report.html").write_text(pages.html(blocks), encoding="utf-8")
    return summary(found, folder)


def main(folder):
    folder = pathlib.Path(folder)
    with open(folder / "results.json", encoding="utf-8") as file:
        print(write(results.Results(json.load(file)), folder))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stdout if sys.argv[1:] == ["--help"] else sys.stderr)
        sys.exit(0 if sys.argv[1:] == ["--help"] else 2)
    main(sys.argv[1])
