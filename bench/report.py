#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Writes the report of a run: report.html, report.md and, for the terminal, a summary.

usage: bench/report.py DIR    reads DIR/results.json, as bench/run left it, and writes DIR/report.html and DIR/report.md

Here the figures are chosen; templates/ has the words around them.
"""
import dataclasses
import math
import pathlib
import sys

import compare
import comparisons
import engines
import plots
import probes
import results
import summary
import tables
from comparisons import DIRECTIONS, MODES, shape_text, verdict
from operations import CORE, ELEMENTWISE, PAIRS, REDUCTIONS, title
from results import Case
from tables import Cell, Table

TEMPLATES = pathlib.Path(__file__).resolve().parent / "templates"
NO_JINJA = "No report.html and report.md: Jinja2 is missing (python3-jinja2 in Debian and Ubuntu)."

# Up to NEAR times the limit a table shows a time as near to it, from FAR times on as far from it.
NEAR, FAR = 1.3, 2.0

# The norms that replace others.
REPLACING = " or ".join(map(title, ELEMENTWISE))

# The title of the table to which the warning of noise refers.
WIDE_TITLE = "Cases whose rounds disagree"

# What the colours of cells mean, for each kind of cell.
MEANINGS = {"faster": f"{REPLACING} is faster", "slower": f"{REPLACING} is slower",
            "same": "both take as long", "unclear": "the rounds do not tell", "near": f"at most {NEAR} times the limit",
            "far": f"{FAR:g} times the limit or more", "behind": "the other is faster",
            "gain": "the first is faster", "loss": "the first is slower"}

# What the tables' names of modes and of the norms that have no bars mean.
WORDS = {
    "portable": "The default mode: the same bits on every machine.",
    "native": "A mode in which DyT and DyISRU may use this CPU's estimate instructions, so that the bits may differ "
              "between CPUs, within wider error bounds. What has no row here is as in the portable mode.",
    "brief": "A mode in which DyT and DyISRU compute as exactly as 16 bits can show, the same bits on every machine.",
    "sleef": "A mode in which DyT calls SLEEF's tanh, which errs by at most 1 ULP.",
    "centered_dyisru": "DyISRU of each row less its mean."}


@dataclasses.dataclass(frozen=True)
class Model:
    """The norms that a token passes in a model: so many in each layer, and so many outside of them."""
    norm: str
    layers: int
    in_a_layer: int
    outside: int

    @property
    def norms(self):
        return self.layers * self.in_a_layer + self.outside


# From the configurations that were published with the weights (config.json: n_layer or num_hidden_layers), and from the
# models' code in the library transformers. None of these models normalizes queries and keys.
MODELS = {
    # openai-community/gpt2. GPT2Block: ln_1, ln_2. GPT2Model: ln_f.
    "GPT-2": Model("layernorm", 12, 2, 1),
    # google-bert/bert-large-uncased. BertSelfOutput and BertOutput: LayerNorm. BertEmbeddings: LayerNorm. The heads for
    # pre-training have a further one, which is not part of the model.
    "BERT-large": Model("layernorm", 24, 2, 1),
    # huggyllama/llama-7b, -13b, -65b. LlamaDecoderLayer: input_layernorm, post_attention_layernorm. LlamaModel: norm.
    "LLaMA 7B": Model("rmsnorm", 32, 2, 1),
    "LLaMA 13B": Model("rmsnorm", 40, 2, 1),
    "LLaMA 65B": Model("rmsnorm", 80, 2, 1),
    # google/gemma-2-2b. Gemma2DecoderLayer: input_layernorm, post_attention_layernorm, pre_feedforward_layernorm,
    # post_feedforward_layernorm. Gemma2Model: norm.
    "Gemma 2 2B": Model("rmsnorm", 26, 4, 1)}

# Peers that are variants of one another share a bar, that of the fastest.
PEER_NAMES = {"loops": "plain C", "sleef": "SLEEF's tanh", "onednn": "oneDNN", "pytorch": "PyTorch"}

# The norms of which the native mode is compared with the peers as well, and why.
NATIVE_BESIDE_PEERS = ("dyisru",)
WHY_NATIVE = ("For DyISRU the native mode is the fair comparison: with -ffast-math compilers may use the CPU's "
              "estimate of the inverse square root, as this library does in that mode only.")


# ---- Pictures of bars ------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Bar:
    label: str
    value: float
    text: str
    kind: str  # the class that gives it a colour
    strong: bool = False


@dataclasses.dataclass
class Panel:
    """Bars in groups, to one scale or each group to its own. The longest bar of a scale, or the line if that is
    farther, takes the whole width."""
    title: str
    groups: list  # [(label or "", [Bar])]
    line: float = 0  # where to draw a line, or 0
    line_label: str = ""
    own_scales: bool = False

    def columns(self):
        """The width of the texts behind the bars in widths of a digit. A letter takes less on average."""
        return 2 + round(0.85 * max(len(bar.text) for _, bars in self.groups for bar in bars))

    def percent(self, value, group=()):
        """How far a value reaches, in percent of the width."""
        scale = group if self.own_scales else [bar for _, bars in self.groups for bar in bars]
        return round(100 * value / max(self.line, *(bar.value for bar in scale)), 2)


def kind_of(operation):
    return "reduction" if operation in REDUCTIONS else "elementwise"


def panels(groups_of, **more):
    """A Panel for each direction in which groups_of(direction) has bars."""
    made = [Panel(direction.capitalize(), [group for group in groups_of(direction) if group[1]], **more)
            for direction in DIRECTIONS]
    return [panel for panel in made if panel.groups]


def answer_panels(found, isa, shape):
    """A bar for each norm: its time over that of the copy, or, where no limit was measured, in nanoseconds a token."""
    limited = any(results.is_limit(case) and results.shape_of(case) == shape for case in found.times)

    def groups_of(direction):
        bars = []
        for operation in comparisons.core_operations(found, direction, isa, shape):
            case = Case(operation, direction, isa, "portable", *shape)
            time, over = found.time(case).median / shape[0], found.time_over_limit(case)
            if limited and not over:
                continue
            bars.append(Bar(title(operation), over.median if limited else time,
                            (f"{over.median:.2f} x, " if limited else "") + f"{time:,.0f} ns",
                            kind_of(operation)))
        return [("", bars)]

    made = panels(groups_of)
    for panel in made if limited else []:
        panel.line, panel.line_label = 1, "copy" if panel.title == "Forward" else "sum of two tensors"
    return made


def speed_bar(found, case, label, kind):
    speed = found.bytes_per_second(case) / 1e9
    return Bar(label, speed, f"{speed:.1f} GB/s", kind)


def throughput_panels(found, shape):
    def groups_of(direction):
        return [(title(operation), [speed_bar(found, case, isa, kind_of(operation)) for isa in found.isas
                                    if (case := Case(operation, direction, isa, "portable", *shape)) in found.times])
                for operation in CORE]

    return panels(groups_of)


def model_names(found):
    return [reason for reason in found.reasons
            if reason not in ("main", "size", "channels", "L1", "L2", "L3", "beyond the caches", *engines.SETS)]


def model_panels(found, isa):
    """What all norms of a model take for one token of a batch, if they are all of one kind."""
    def bars_of(model, direction, shape):
        for operation in comparisons.core_operations(found, direction, isa, shape):
            time = found.time(Case(operation, direction, isa, "portable", *shape)).median / shape[0] * model.norms
            yield Bar(title(operation), time, f"{time:,.0f} ns", kind_of(operation), operation == model.norm)

    def groups_of(direction):
        for name in model_names(found):
            if name in MODELS:
                model, shape = MODELS[name], found.reasons[name][0]
                yield (f"{name}: {model.norms} x {title(model.norm)}, {shape[1]} channels",
                       list(bars_of(model, direction, shape)))

    return panels(groups_of, own_scales=True)


def one_token_panels(found):
    """What a call of each norm, and the same norm as a loop, takes for one token, with hot and with cold caches."""
    calls = [record for record in found.one_token if record.get("by") in ("library", "loop")]

    def bar_of(call, when):
        label, kind = (("in plain C", "other") if call["by"] == "loop"
                       else (title(call["operation"]), kind_of(call["operation"])))
        return Bar(label, call[when], f"{call[when]:,.0f} ns", kind)

    def groups_of(when):
        return [(f"{channels} channels", [bar_of(call, when) for call in calls if call["channels"] == channels])
                for channels in dict.fromkeys(call["channels"] for call in calls)]

    return [Panel(name, groups_of(when), own_scales=True) for name, when in
            (("Hot: called again and again", "hot"), ("Cold: called once, after other work", "cold"))] if calls else []


def type_panels(found, isa):
    """Elements a second of each type, at the shapes that matter most."""
    shapes = [shape for _, shape in sorted(engines.Reader(found, isa).shapes("types"))[:2]]

    def groups_of(direction, shape):
        for operation in CORE:
            cases = [Case(operation, direction, isa, "portable", *shape, kind) for kind in results.BYTES]
            bars = [Bar(case.type, 1 / found.time(case).median,
                        f"{case.tokens * case.channels / found.time(case).median:.2f} G/s, "
                        f"{found.bytes_per_second(case) / 1e9:.1f} GB/s", kind_of(operation))
                    for case in cases if case in found.times]
            if len(bars) > 1:
                yield title(operation), bars

    made = [Panel(f"{direction.capitalize()}, {shape_text(shape)}", list(groups_of(direction, shape)))
            for shape in shapes for direction in DIRECTIONS]
    return [panel for panel in made if panel.groups]


def peer_family(mode):
    return next((name for prefix, name in PEER_NAMES.items() if mode.startswith(prefix)), mode)


def why_not_compared(found, peer):
    """Why no case of a peer was measured, or "" if one was."""
    def is_its(case):
        return results.is_peer(case) and case.mode == peer

    if found.peers[peer].startswith("absent: "):
        return found.peers[peer].removeprefix("absent: ")
    if any(map(is_its, found.times)):
        return ""
    return "it computes something else" if any(map(is_its, found.errors)) else "it has none of the cases of this run"


def modes_beside_peers(found, operation, direction, isa):
    """The modes of this library that are compared with the peers."""
    return ["portable", *(mode for name, mode in kernels_of(found, direction, isa)
                          if name == operation and operation in NATIVE_BESIDE_PEERS and mode == "native")]


def why_native(found, isa):
    """A sentence for where modes_beside_peers() has the native one, or ""."""
    shown = any(modes_beside_peers(found, case.operation, case.direction, isa)[1:]
                for case in found.times if results.is_peer(case))
    return WHY_NATIVE if isa and shown else ""


def peers_without_bars(found):
    """{name: why} of the families of peers of which no case was measured."""
    families = {}
    for peer in found.peers:
        families.setdefault(peer_family(peer), []).append(why_not_compared(found, peer))
    return {family: reasons[0] for family, reasons in families.items() if all(reasons)}


def peer_panels(found, isa, shape):
    """This library's speed beside that of the fastest variant of each peer."""
    others = [case for case in found.times if results.is_peer(case) and results.shape_of(case) == shape]

    def bars_of(operation, direction):
        fastest = {}
        for case in others:
            if (case.operation, case.direction) == (operation, direction):
                family = peer_family(case.mode)
                if family not in fastest or found.time(case).median < found.time(fastest[family]).median:
                    fastest[family] = case
        own = {mode: case for mode in modes_beside_peers(found, operation, direction, isa)
               if (case := Case(operation, direction, isa, mode, *shape)) in found.times}
        if not fastest or not own:
            return []
        return [*(speed_bar(found, case, "native mode" if mode == "native" else "libdynnorm", kind_of(operation))
                  for mode, case in own.items()),
                *(speed_bar(found, case, family, "other") for family, case in fastest.items())]

    return panels(lambda direction: [(title(operation), bars_of(operation, direction)) for operation in CORE])


# ---- Tables ----------------------------------------------------------------------------------------------------------


def figure_cell(spread, kind, unclear=False):
    """A cell with the median, a question mark if the rounds disagree, and the quartiles as a hint."""
    return Cell(f"{spread.median:.2f}{'?' if unclear or spread.is_wide() else ''}", kind,
                f"half of the rounds: {spread.low:.2f} to {spread.high:.2f}")


def ratio_cell(spread):
    return figure_cell(spread, verdict(spread), verdict(spread) == "unclear") if spread else "-"


def ratio_table(found, isa):
    rows = []
    for pair in PAIRS:
        for mode in MODES:
            for directions in (("forward",), ("backward",), DIRECTIONS):
                spreads = [comparisons.ratio(found, pair, directions, isa, mode, shape) for shape in found.main_shapes]
                if any(spreads):
                    rows.append([f"{title(pair[1])} / {title(pair[0])}", mode, " + ".join(directions),
                                 *map(ratio_cell, spreads)])
    return Table(f"{REPLACING} in place of another norm, {isa}",
                 f"Time of {REPLACING} / time of the norm that it replaces: below 1 {REPLACING} is faster. The mode is "
                 f"that of {REPLACING}. A question mark: the rounds are too few, or disagree.",
                 ["time / time", "mode", "pass", *map(shape_text, found.main_shapes)], rows, 3)


def kernels_of(found, direction, isa):
    """[(operation, mode)] of the kernels of an instruction set, in the order in which they were measured."""
    return list(dict.fromkeys((case.operation, case.mode) for case in found.times
                              if case.isa == isa and case.direction == direction))


def limit_cell(spread):
    if spread is None:
        return "-"
    return figure_cell(spread, "near" if spread.median <= NEAR else "far" if spread.median >= FAR else "")


def limit_rows(found, direction):
    """Rows with the limits themselves, in GB/s."""
    names = dict.fromkeys(case.operation for case in found.times
                          if results.is_limit(case) and case.direction == direction)
    for name in names:
        speeds = [found.bytes_per_second(Case(name, direction, None, None, *shape)) for shape in found.main_shapes]
        yield [name.replace("_", " ") + ", GB/s", "", *(f"{speed / 1e9:.1f}" if speed else "-" for speed in speeds)]


def limit_table(found, isa, direction):
    rows = list(limit_rows(found, direction))
    for operation, mode in kernels_of(found, direction, isa):
        spreads = [found.time_over_limit(Case(operation, direction, isa, mode, *shape)) for shape in found.main_shapes]
        if any(spreads):
            rows.append([title(operation), mode, *map(limit_cell, spreads)])
    limit = "a copy" if direction == "forward" else "the sum of two tensors"
    return Table(f"Time over the limit, {direction}, {isa}",
                 f"Time divided by that of {limit} of the same shape in the same round, the faster of one that stores "
                 f"through the caches and one that stores past them (nontemporal). The first rows are the limits' own "
                 f"speeds.",
                 ["operation", "mode", *map(shape_text, found.main_shapes)], rows, 2)


def data_caches(found):
    return {cache["level"]: cache for cache in found.context.get("caches", []) if cache["type"] != "Instruction"}


def megabytes(count):
    """A number of bytes in KB or MB of 1024 and 1024^2, as sizes of caches are given."""
    if count < 1 << 20:
        return f"{count / (1 << 10):.0f} KB"
    return f"{count / (1 << 20):.2g} MB" if count < 10 << 20 else f"{count / (1 << 20):.0f} MB"


def cache_table(found, isa):
    measured = {results.shape_of(case) for case in found.times}
    shapes = [(reason, shape) for reason in ("L1", "L2", "L3", "beyond the caches")
              for shape in found.reasons.get(reason, []) if shape in measured]
    rows = [[title(operation), direction,
             *(limit_cell(found.time_over_limit(Case(operation, direction, isa, "portable", *shape)))
               for _, shape in shapes)] for direction in DIRECTIONS for operation in CORE]
    heads = [f"{reason}: {shape_text(shape)}, {megabytes(3 * 4 * shape[0] * shape[1])}" for reason, shape in shapes]
    return Table(f"Time over the limit by cache, {isa}",
                 "The same, portable, at shapes sized from this machine's caches, or from those that the library assumes "
                 "where the system reports none: three tensors take half of a cache, or twice the last one. They take "
                 "at most 32 MB of an L3 cache, since others may use it too; and what is beyond the caches never takes "
                 "more than a quarter of the memory.",
                 ["operation", "pass", *heads], rows if shapes else [], 2)


def isa_cell(found, case, scalar):
    speed, factor = found.bytes_per_second(case), found.ratio([scalar], [case])
    if not speed:
        return "-"
    return f"{speed / 1e9:.1f}" + (f" ({factor.median:.1f}x)" if factor and case.isa != "scalar" else "")


def isa_table(found, direction):
    rows = []
    for operation, mode in dict.fromkeys(kernel for isa in found.isas for kernel in kernels_of(found, direction, isa)):
        for isa in found.isas:
            listed = [Case(operation, direction, isa, mode, *shape) for shape in found.main_shapes]
            if any(case in found.times for case in listed):
                rows.append([title(operation), mode, isa,
                             *(isa_cell(found, case, case._replace(isa="scalar")) for case in listed)])
    moved = "x read and y written" if direction == "forward" else "dy and x read and dx written"
    compared = ", and in brackets how many times as fast as scalar" if "scalar" in found.isas else ""
    return Table(f"Instruction sets, {direction}", f"GB/s of {moved}{compared}.",
                 ["operation", "mode", "instruction set", *map(shape_text, found.main_shapes)], rows, 3)


def narrower_table(found, wide, narrow):
    """Where a kernel is faster on the narrower of two instruction sets."""
    factors = {}
    for case in found.times:
        spread = found.ratio([case], [case._replace(isa=narrow)]) if case.isa == wide else None
        if spread and verdict(spread) == "slower":
            factors.setdefault((case.operation, case.direction, case.mode), []).append((spread.median, case))
    rows = []
    for (operation, direction, mode), listed in factors.items():
        factor, where = max(listed, key=lambda item: item[0])
        rows.append([f"{title(operation)} {direction}", mode, shape_text(results.shape_of(where)), f"{factor:.2f}",
                     str(len(listed))])
    return Table(f"Where a narrower instruction set is faster: {narrow} than {wide}",
                 "For each operation, the shape where the narrower set wins by most, and at how many shapes it wins.",
                 ["operation", "mode", "shape", f"time, {wide} / {narrow}", "shapes"], rows, 3)


def peer_cell(found, case, isa, mode):
    """A peer's case beside that of this library in a mode."""
    if case in found.errors:
        return found.errors[case].partition(":")[0]
    if isa is None:
        speed = found.bytes_per_second(case)
        return f"{speed / 1e9:.1f}" if speed else "-"
    spread = found.ratio([case], [case._replace(isa=isa, mode=mode)])
    return figure_cell(spread, "behind" if spread.median < 1 / comparisons.NOTABLE else "") if spread else "-"


def peer_table(found, isa):
    others = [case for case in [*found.times, *found.errors] if results.is_peer(case)]
    rows = [[f"{title(operation)} {direction}{', native' if mode == 'native' else ''}", peer,
             *(peer_cell(found, Case(operation, direction, "peer", peer, *shape), isa, mode)
               for shape in found.main_shapes)]
            for operation, direction, peer in dict.fromkeys((case.operation, case.direction, case.mode)
                                                            for case in others)
            for mode in modes_beside_peers(found, operation, direction, isa)]
    rows.sort(key=lambda row: row[0])
    if isa is None:
        note = "GB/s of the others, since no instruction set of this library was measured beside them."
    else:
        note = (f"Time of the other divided by that of this library on {isa}, portable unless it says native: above 1 "
                "this library is faster. Each is first checked to compute what this library does, within "
                f"{found.context.get('peer tolerance', '?')} of the largest result of each tensor; one that does not "
                f"is shown as wrong, and not compared. The machine's table says what each is. {why_native(found, isa)}")
    return Table("Compared with others", note, ["operation", "by", *map(shape_text, found.main_shapes)], rows, 2)


def wrong_table(found):
    rows = [[f"{title(case.operation)} {case.direction}{'' if case.type == 'f32' else ', ' + case.type}", case.mode,
             shape_text(results.shape_of(case)), why] for case, why in found.errors.items() if results.is_peer(case)]
    return Table("Others that compute something else, or nothing", "", ["operation", "by", "shape", "why"], rows, 4)


def model_table(found, isa, direction):
    columns = [(operation, mode) for operation in CORE for mode in MODES
               if any(case.operation == operation and case.mode == mode for case in found.times)]
    rows = []
    for name in model_names(found):
        for shape in found.reasons[name]:
            times = [found.time(Case(operation, direction, isa, mode, *shape)) for operation, mode in columns]
            if any(times):
                rows.append([name, shape_text(shape), *(f"{time.median / shape[0]:.0f}" if time else "-"
                                                        for time in times)])
    heads = [title(operation) + (", native" if mode == "native" else "") for operation, mode in columns]
    return Table(f"One norm at the width of a model, {direction}, {isa}",
                 "Nanoseconds a token for one norm, portable unless it says native.", ["model", "shape", *heads], rows,
                 2)


# Rows whose channels are split among nodes: the doubles that a part tells of each token and block of channels
# (docs/splitting.md), and the network of the model.
SPLIT_DOUBLES, SPLIT_BLOCK = {"layernorm": 4, "rmsnorm": 2}, 1024
SPLIT_NODES, MESSAGE_US, GIGABYTES = (8, 64, 512), 2, 12.5


def split_time(operation, nanoseconds, channels, nodes):
    """Microseconds of a forward call of one token with so many channels on each of the nodes."""
    doubles = SPLIT_DOUBLES.get(operation, 0) * -(-channels // SPLIT_BLOCK)
    waiting = MESSAGE_US * math.ceil(math.log2(nodes)) + 8 * doubles * (nodes - 1) / GIGABYTES / 1000
    return nanoseconds / 1000 + (waiting if doubles else 0)


def split_model_table(found):
    """What exchanging statistics would cost, as a model that begins with the single calls that were measured."""
    calls = [record for record in found.one_token if record.get("by") == "library" and record["operation"] in CORE]
    channels = max((record["channels"] for record in calls), default=0)
    rows = [[title(record["operation"]), *(f"{split_time(record['operation'], record['hot'], channels, nodes):.1f}"
                                           for nodes in (1, *SPLIT_NODES))]
            for record in calls if record["channels"] == channels]
    return Table("Channels split among machines: a model",
                 f"This is a model, not a measurement: microseconds of a forward call of one token with {channels} "
                 "channels on each node. Norms with statistics need an exchange for each token; DyT and DyISRU need "
                 "none, which is where they win most. The arithmetic is that of the hot call in \"One token\". An "
                 f"exchange among n nodes takes log2(n) messages of {MESSAGE_US} microseconds, and the time in which "
                 f"a node receives at {GIGABYTES} GB/s what all others tell. docs/splitting.md has what an exchange "
                 "between processes took, and examples/mpi_sharded measures it on your machines.",
                 ["forward", "one node", *(f"{nodes} nodes" for nodes in SPLIT_NODES)], rows, 1)


def wide_table(found):
    wide, _ = comparisons.wide_cases(found)
    rows = [[results.name_of(case), f"{relative:.0%}"] for relative, case in wide]
    return Table(WIDE_TITLE,
                 f"Cases where the middle half of the rounds spans more than {results.WIDE:.0%} of the median.",
                 ["case", "spread"], rows, 1)


def splitting_table(found):
    """Where some of several threads have no work."""
    few = {}
    for case, busy in found.busy_threads.items():
        if busy < found.threads:
            few.setdefault(("limit" if results.is_limit(case) else case.direction, results.shape_of(case)),
                           set()).add(busy)
    rows = [[what, shape_text(shape), " or ".join(map(str, sorted(busy)))] for (what, shape), busy in few.items()]
    return Table("Threads without work",
                 "Limits are cut between cache lines, forward passes between rows, backward passes between blocks of "
                 "rows. A small tensor has fewer of them than there are threads, or so little work that the library "
                 "leaves it to one of them.",
                 ["pass", "shape", "threads with work"], rows, 2)


def flags_table(found):
    """How the kernels were compiled. The text is as bench/meson.build writes it."""
    of_all, *of_each = found.context.get("compiler flags", "").split("; ")
    rows = [["all", of_all], *(part.split(": ", 1) for part in of_each)] if of_all else []
    return Table("How the kernels were compiled",
                 "The flags of all kernels, and those that each instruction set adds; of several -O the last one "
                 "counts. Without -ffp-contract=off and -fno-fast-math, compilers would change the bits. scalar_fma is "
                 "what runs as scalar on CPUs that have fused multiply-add.", ["kernels", "flags"], rows, 2)


def norm_tables(found, isa):
    """Of norms of floats."""
    listed = [*(ratio_table(found, one) for one in found.isas)]
    if isa:
        listed += [*(limit_table(found, isa, direction) for direction in DIRECTIONS), cache_table(found, isa)]
    listed += [*(isa_table(found, direction) for direction in DIRECTIONS),
               *(narrower_table(found, wide, narrow) for wide, narrow in zip(found.isas, found.isas[1:])),
               peer_table(found, isa)]
    return listed


def all_tables(found, isa):
    listed = [] if engines.are_all(found) else norm_tables(found.ordinary(), isa)
    listed += [*engines.tables(found, isa), wrong_table(found),
               *([*probes.calls(found.one_token), split_model_table(found)] if found.one_token else [])]
    if isa:
        listed += [model_table(found.ordinary(), isa, direction) for direction in DIRECTIONS]
    return [table for table in [*listed, splitting_table(found), wide_table(found), flags_table(found)] if table.rows]


def peer_text(found, peer):
    count = sum(results.is_peer(case) and case.mode == peer for case in found.times)
    if found.peers[peer].startswith("absent: "):
        return found.peers[peer]
    reason = why_not_compared(found, peer)
    return f"{found.peers[peer]}; " + (f"not compared: {reason}" if reason else results.plural(count, "case"))


def machine_table(found):
    context = found.context
    caches = [f"L{cache['level']} {megabytes(cache['size'])}" + (f" for {cache['num_sharing']} processors"
                                                                 if cache.get("num_sharing", 1) > 1 else "")
              for cache in data_caches(found).values()]
    assumed = context.get("caches, as the library assumes", "").split()
    rows = [["date", context.get("date", "")],
            ["CPU", context.get("cpu", "")],
            ["processors", f"{results.processors(context) or '?'} at {context.get('mhz_per_cpu', '?')} MHz nominally"],
            ["caches, reported by the system", ", ".join(caches) or "not reported"],
            ["caches, as the library assumes",
             ", ".join(f"L{level} {megabytes(int(size))}" for level, size in enumerate(assumed, 1))],
            ["instruction sets", context.get("isas", "").replace(" ", ", ")],
            ["scalar", context.get("scalar", "")],
            ["threads", str(found.threads)],
            ["frequency governor", context.get("governor", "")],
            ["load average at the start",
             ", ".join(f"{load:.2f} over {minutes} min"
                       for load, minutes in zip(context.get("load_avg") or [], (1, 5, 15)))],
            ["libdynnorm", context.get("dynnorm version", "")],
            ["compiler", context.get("compiler", "")],
            ["measured", f"{results.count_text(found.times)} of the {context.get('set', '')} set, {found.rounds} "
                         f"rounds, {context.get('options', '')}"],
            *([name, peer_text(found, name)] for name in found.peers)]
    return Table("The machine and the run", "", ["", ""], [row for row in rows if row[1]], 2)


# ---- The page --------------------------------------------------------------------------------------------------------


def shape_in_words(shape):
    tokens, channels = shape
    return f"{results.plural(tokens, 'token')} of {channels} channels, {megabytes(4 * tokens * channels)} in float32"


def compose(found):
    """What the templates show."""
    isa = found.isas[0] if found.isas else None
    everything, found = found, found.ordinary()
    shape = comparisons.pictured_shape(found)
    drawn, why_no_plots = plots.over_limit(found, isa) if isa and not engines.are_all(everything) else ([], "")
    pictured = isa and shape
    used = {word for case in everything.times if case.isa in found.isas for word in (case.mode, case.operation)}
    engine_answer = engines.answer(everything, isa)
    return {"cpu": found.context.get("cpu", ""), "isa": isa,
            "threads": "one thread" if found.threads == 1 else f"{found.threads} threads",
            "shape": shape_text(shape) if shape else "", "shape_in_words": shape_in_words(shape) if shape else "",
            "answer": (comparisons.answer(found, isa, comparisons.ranked_scope(found, isa))
                       if not engines.are_all(everything) else engine_answer),
            "engine_answer": "" if engines.are_all(everything) else engine_answer,
            "type_panels": type_panels(everything, isa) if isa else [],
            "engine_tables": [table for table in (*engines.ratio_tables(everything, isa),
                                                  engines.structure_table(everything, isa)) if table.rows],
            "others": comparisons.others(found, isa),
            "answer_shapes": ", ".join(map(shape_text, comparisons.shown_shapes(found))),
            "notable": f"{comparisons.NOTABLE - 1:.0%}", "warnings": comparisons.warnings(everything, WIDE_TITLE),
            "answer_panels": answer_panels(found, isa, shape) if pictured else [],
            "throughput_panels": throughput_panels(found, shape) if pictured else [],
            "model_panels": model_panels(found, isa) if isa else [],
            "one_token_panels": one_token_panels(found),
            "plots": drawn, "why_no_plots": why_no_plots,
            "peer_panels": peer_panels(found, isa, shape) if pictured else [],
            "why_native": why_native(found, isa),
            "peers_without_bars": peers_without_bars(found),
            "tables": all_tables(everything, isa), "meanings": MEANINGS,
            "words": {title(word): meaning for word, meaning in WORDS.items() if word in used},
            "machine": machine_table(everything),
            "is_full": "full" in found.context.get("set", "").split(", ") or engines.are_all(everything)}


def render(template, page):
    """The text of a template. Raises ImportError if Jinja2 is missing."""
    import jinja2  # pylint: disable=import-outside-toplevel
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), trim_blocks=True, lstrip_blocks=True,
                                     keep_trailing_newline=True, autoescape=template.endswith(".html"),
                                     undefined=jinja2.StrictUndefined)
    environment.filters.update(markdown=tables.markdown, wrapped=tables.wrapped)
    return environment.get_template(template).render(page)


def write(found, folder, suffix=""):
    """Writes report.html and report.md, with the suffix before the dot. Returns the summary."""
    try:
        page = compose(found)
        for kind in ("html", "md"):
            (folder / f"report{suffix}.{kind}").write_text(render(f"report.{kind}", page), encoding="utf-8")
        where = [f"The report: {folder / f'report{suffix}.html'}"]
    except ImportError:
        where = [NO_JINJA, f"With it, bench/report.py {folder} writes them."]
    return summary.text(found, where)


def main(folder):
    found = compare.read(pathlib.Path(folder, "results.json"))
    try:
        print(write(found, pathlib.Path(folder)))
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stdout if sys.argv[1:] == ["--help"] else sys.stderr)
        sys.exit(0 if sys.argv[1:] == ["--help"] else 2)
    main(sys.argv[1])
