# SPDX-License-Identifier: BSD-2-Clause
"""Compares norms that were measured in one run, and says how far a run can be trusted."""
import collections
import statistics

import results
from operations import CORE, PAIRS, title
from results import Case

# How a norm does in the cases of a run: in how many no other norm is faster; how many times as long as the best norm it
# takes in the median case; and whether the rounds leave any comparison open.
Rank = collections.namedtuple("Rank", "operation wins factor is_open")

MODES = ("portable", "native")
DIRECTIONS = ("forward", "backward")

# The least ratio of two times that the report calls a difference.
NOTABLE = 1.05
# If two norms are equally fast, one of them still is the faster in all of n rounds with a probability of 2^(1 - n).
ENOUGH_ROUNDS = 4
# A load average from which on the machine counts as busy.
BUSY = 0.5

# The shapes that the terminal shows if they were measured: short rows, two shapes in the caches, one in memory.
SHOWN_SHAPES = ((4096, 64), (32, 1024), (64, 4096), (4096, 4096))
# The one shape of the report's pictures.
PICTURED_SHAPE = (64, 4096)


def shape_text(shape):
    return f"{shape[0]} x {shape[1]}"


def shown_shapes(found):
    """At most four shapes, of those that all norms were measured at."""
    return [shape for shape in SHOWN_SHAPES if shape in found.main_shapes] or found.main_shapes[:4]


def pictured_shape(found):
    """The shape of the pictures, or None if the run has none."""
    if PICTURED_SHAPE in found.main_shapes:
        return PICTURED_SHAPE
    return found.main_shapes[len(found.main_shapes) // 2] if found.main_shapes else None


def cases(found, operation, directions, isa, mode, shape):
    """The cases that run when an operation is called in a mode. A mode without a kernel runs the portable one."""
    kernels = {(case.operation, case.direction, case.mode) for case in found.times}
    return [Case(operation, direction, isa, mode if (operation, direction, mode) in kernels else "portable", *shape)
            for direction in directions]


def ratio(found, pair, directions, isa, mode, shape):
    """The Spread of the time of the elementwise norm over that of the norm which it replaces, or None. The pair is
    (the norm to replace, the elementwise norm)."""
    replaced, elementwise = pair
    above = cases(found, elementwise, directions, isa, mode, shape)
    if all(case.mode != mode for case in above):
        return None
    return found.ratio(above, cases(found, replaced, directions, isa, mode, shape))


def verdict(spread):
    """"faster" or "slower" if every round says so; "same"; or "unclear" if the rounds disagree or are too few."""
    if spread.rounds < ENOUGH_ROUNDS:
        return "unclear"
    if spread.median >= NOTABLE:
        return "slower" if spread.least > 1 else "unclear"
    if spread.median <= 1 / NOTABLE:
        return "faster" if spread.most < 1 else "unclear"
    return "unclear" if spread.is_wide() else "same"


def compared(found, isa, directions=DIRECTIONS):
    """{(pair, direction): [(shape, Spread or None)]} in the portable mode at the shown shapes, of what was measured."""
    listed = {(pair, direction): [(shape, ratio(found, pair, (direction,), isa, "portable", shape))
                                  for shape in shown_shapes(found)] for direction in directions for pair in PAIRS}
    return {key: spreads for key, spreads in listed.items() if any(spread for _, spread in spreads)}


def core_operations(found, direction, isa, shape):
    """The norms of CORE that were measured in the portable mode."""
    return [operation for operation in CORE if Case(operation, direction, isa, "portable", *shape) in found.times]


def ranked_cases(found, isa):
    """[(direction, shape)] of the cases by which ranked() compares the norms."""
    return [(direction, shape) for direction in DIRECTIONS for shape in shown_shapes(found)
            if len(core_operations(found, direction, isa, shape)) > 1]


def ranked_scope(found, isa):
    """What the cases are, as answer() takes it."""
    listed = ranked_cases(found, isa)
    directions = dict.fromkeys(direction for direction, _ in listed)
    shapes = results.plural(len({shape for _, shape in listed}), "shape")
    return f" ({shapes}, {' and '.join(directions)}) in the portable mode on {isa}"


def ranked(found, isa):
    """([Rank] of the norms of CORE, the best first; how many cases there are). A case is a pass at one of the shown
    shapes, in the portable mode. Norms that were not measured in all of them are left out."""
    measured = ranked_cases(found, isa)
    norms = [operation for operation in CORE
             if all(operation in core_operations(found, direction, isa, shape) for direction, shape in measured)]

    if not measured or len(norms) < 2:
        return [], 0

    def spreads(above, below):
        return [found.ratio([Case(above, direction, isa, "portable", *shape)],
                            [Case(below, direction, isa, "portable", *shape)]) for direction, shape in measured]

    def typical(above, below):
        return statistics.median(spread.median for spread in spreads(above, below))

    verdicts = {norm: list(zip(*(map(verdict, spreads(norm, other)) for other in norms))) for norm in norms}
    wins = {norm: sum("slower" not in in_case for in_case in listed) for norm, listed in verdicts.items()}
    best = max(norms, key=lambda norm: (wins[norm], -typical(norm, norms[0])))
    ranks = [Rank(norm, wins[norm], typical(norm, best), any("unclear" in in_case for in_case in verdicts[norm]))
             for norm in norms]
    return sorted(ranks, key=lambda rank: (rank.operation != best, rank.factor)), len(measured)


def answer(found, isa, scope=""):
    """What helps to choose a norm, in a sentence from a template. scope is what to add about the cases."""
    ranks, count = ranked(found, isa)
    if not ranks:
        return "This run does not compare the norms with one another."
    if any(rank.wins < count for rank in ranks):
        cases = f"all {count}" if ranks[0].wins == count else f"{ranks[0].wins} of {count}"
        return f"For speed choose {title(ranks[0].operation)}, the fastest in {cases} cases{scope}."
    if any(rank.is_open for rank in ranks):
        return "The rounds are too few, or disagree too much, to call any norm faster."
    return "All norms are equally fast."


def others(found, isa):
    """How the other norms do beside the one that answer() names, in a sentence, or "" if it names none."""
    ranks, count = ranked(found, isa)
    if all(rank.wins == count for rank in ranks):
        return ""
    _, second, *rest = ranks
    return (f"Typically {title(second.operation)} takes {second.factor:.1f} times as long"
            f"{''.join(f', {title(rank.operation)} {rank.factor:.1f}' for rank in rest)}.")


def load_warning(found):
    loads = found.context.get("load_avg") or [0]
    if loads[0] > BUSY:
        count = results.processors(found.context)
        place = f" on {results.plural(count, 'processor')}" if count else ""
        return f"The machine was busy (a load of {loads[0]:.1f}{place}): times may be too long. Ratios suffer less."
    return ""


def rounds_warning(found):
    if found.rounds < ENOUGH_ROUNDS:
        return f"Only {results.plural(found.rounds, 'round')}: too few to call anything faster or slower."
    return ""


def wide_cases(found):
    """([(relative spread, case)] of the cases whose rounds disagree too much, widest first; the number of cases)."""
    judged = [(case, results.Spread.of(found.figures(case).values())) for case in found.times
              if not results.is_limit(case) and (case in found.over_limit or results.limit_key(case) is None)]
    return (sorted(((spread.relative, case) for case, spread in judged if spread.is_wide()), reverse=True),
            len(judged))


def wide_warning(found, listed_under):
    wide, judged = wide_cases(found)
    if not judged:
        return "No limit was measured, so nothing says how far the rounds spread."
    if not wide:
        return ""
    where = f" (listed under \"{listed_under}\")" if listed_under else ""
    said = (f"{len(wide)} of {judged} times {'varies' if len(wide) == 1 else 'vary'} by more than {results.WIDE:.0%} "
            f"between rounds{where}.")
    # Too few rounds settle no ratio at all, which rounds_warning() says.
    return said if found.rounds < ENOUGH_ROUNDS else f"{said} A \"?\" marks a ratio that the rounds do not settle."


def warnings(found, listed_under=""):
    """What to know before one trusts a run. listed_under is the title of the table of wide_cases(), if it is shown."""
    return [warning for warning in (found.context.get("partial", ""), load_warning(found), rounds_warning(found),
                                    wide_warning(found, listed_under)) if warning]
