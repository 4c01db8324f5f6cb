# SPDX-License-Identifier: BSD-2-Clause
"""The text that the terminal shows at the end of a run: at most 20 lines of at most 80 columns."""
import textwrap

import comparisons
import engines
from comparisons import DIRECTIONS, compared, pictured_shape, shape_text, shown_shapes, verdict
from engines import WIDTH
from operations import CORE, title
from results import Case

HEIGHT = 20
WORDS = {"faster": "faster", "slower": "slower", "same": "same  ", "unclear": "?     "}


def _row(label, texts, label_width, width):
    return (label.ljust(label_width) + "".join(text.rjust(width) for text in texts)).rstrip()


def _ratio_text(spread):
    return f"{spread.median:.2f} {WORDS[verdict(spread)]}" if spread else "-" + " " * 7


def _answer(found, isa):
    listed = compared(found, isa)
    if not listed:
        return []
    threads = "one thread" if found.threads == 1 else f"{found.threads} threads"
    lines = [f"Time of one norm / of another, tokens x channels (portable, {isa}, {threads})"]
    for direction in DIRECTIONS:
        rows = [_row(f"{title(pair[1]).ljust(6)} / {title(pair[0])}", [_ratio_text(spread) for _, spread in spreads],
                     19, 14) for (pair, way), spreads in listed.items() if way == direction]
        if rows:
            shapes = [shape_text(shape).ljust(11) for shape in shown_shapes(found)]
            lines += [_row(direction.capitalize(), shapes, 19, 14), *rows]
    return lines


def _speeds(found, isa):
    """Lines with the speed of each norm at one shape, beside the fastest copy."""
    shape = pictured_shape(found)
    if not shape:
        return []
    names = [operation for operation in CORE
             if any(Case(operation, direction, isa, "portable", *shape) in found.times for direction in DIRECTIONS)]
    rows = []
    for direction in DIRECTIONS:
        speeds = [found.bytes_per_second(Case(name, direction, isa, "portable", *shape)) for name in names]
        limit = found.limit_bytes_per_second(direction, shape)
        if any(speeds):
            rows.append(_row(direction, [f"{speed / 1e9:.1f}" if speed else "-" for speed in [*speeds, limit]], 19, 11))
    heads = [*map(title, names), "copy, sum"]
    return [_row(f"GB/s, {shape_text(shape)}", heads, 19, 11), *rows] if rows else []


def text(found, lines_at_end):
    """The last screen, which ends with these lines: where the report is."""
    isa = found.isas[0] if found.isas else None
    norms = found.ordinary()
    lines = [*_answer(norms, isa), *_speeds(norms, isa)]
    closing = [comparisons.answer(norms, isa)] if not engines.are_all(found) else []
    warned = comparisons.warnings(found)
    if warned:
        closing.append(f"Warning: {' '.join(warned)}")
    wrapped = [line for sentence in closing for line in textwrap.wrap(sentence, WIDTH)]
    # One line is left for what a run says of an earlier one.
    lines += engines.lines(found, isa, HEIGHT - 1 - len(lines) - len(wrapped) - len(lines_at_end))
    return "\n".join([*lines, *wrapped, *lines_at_end])
