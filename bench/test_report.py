#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests results.py, compare.py, summary.py and report.py with invented figures."""
import base64
import html
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "test/harness"), str(HERE)]
import tap  # noqa: E402 (found in the folders above)
import compare  # noqa: E402
import comparisons  # noqa: E402
import engines  # noqa: E402
import operations  # noqa: E402
import plots  # noqa: E402
import probes  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402
import summary  # noqa: E402
import tables  # noqa: E402
from results import Case, Spread  # noqa: E402

CONTEXT = {"isas": "avx512 avx2 scalar", "threads": "1", "shapes, main": "32x1024 64x4096", "load_avg": [0.1, 0, 0],
           "num_cpus": 2, "mhz_per_cpu": 1000, "date": "2000-01-01", "dynnorm version": "9.8.7",
           "scalar": "plain C <honest>", "peer tolerance": "0.125",
           "peer, loops": "present: as one writes", "peer, onednn": "absent: not here",
           "caches": [{"type": "Data", "level": 1, "size": 32768, "num_sharing": 1}]}


def entry(name, cpu_time, **more):
    return {"name": name, "run_name": name, "run_type": "iteration", "cpu_time": cpu_time, "real_time": 1000 * cpu_time,
            "time_unit": "ns", "repetitions": 1, "repetition_index": 0, **more}


def run_of(times, **context):
    """One round: {name without type and shape: nanoseconds}, at 32 x 1024 unless the name has a shape, of floats unless
    the type stands behind the kernel, as in "dyt_forward:bf16-residual/avx2/portable"."""
    entries = []
    for name, time in times.items():
        name, _, shape = name.partition(" ")
        tokens, channels = (shape or "32x1024").split("x")
        kernel, *rest = name.split("/")
        kernel, _, kind = kernel.partition(":")
        full = "/".join([kernel, kind or "f32", *rest, f"tokens:{tokens}", f"channels:{channels}"])
        entries.append(entry(full, time) if isinstance(time, (int, float)) else entry(full, 0, **time))
    return {"context": {**CONTEXT, **context}, "benchmarks": entries}


def found_in(*rounds):
    return results.Results(results.merge(rounds))


def case(name, shape=(32, 1024)):
    kernel, isa, mode = name.split("/")
    operation, direction = kernel.rsplit("_", 1)
    return Case(operation, direction, isa, mode, *shape)


def test_names():
    tap.check_equal(results.parse("centered_dyisru_backward/f32/avx2/native/tokens:3/channels:5"),
                    Case("centered_dyisru", "backward", "avx2", "native", 3, 5), "the name of a kernel")
    tap.check_equal(results.parse("limit_add_nontemporal/f32/tokens:3/channels:5"),
                    Case("limit_add_nontemporal", "backward", None, None, 3, 5), "the name of a limit")
    tap.check_equal([results.parse(name) for name in ("dyt/f32/tokens:3", "dyt_forward/f32/avx2/portable/tokens:3",
                                                      "x_forward/f32/a/b/tokens:1/channels:1/more")], [None] * 3,
                    "other names are none")
    tap.check_equal(results.plain_name("limit_add/f32/tokens:3/channels:5/real_time"),
                    "limit_add/f32/tokens:3/channels:5", "what Google Benchmark appends is taken off")


def test_caches():
    def shown(**context):
        rows = dict(report.machine_table(found_in(run_of({"limit_copy": 1}, **context))).rows)
        return [rows.get(name) for name in ("caches, reported by the system", "caches, as the library assumes")]

    tap.check_equal(shown(**{"caches, as the library assumes": "49152 1048576 33554432"}),
                    ["L1 32 KB", "L1 48 KB, L2 1 MB, L3 32 MB"], "caches as the system and the library have them")
    tap.check_equal(shown(caches=[]), ["not reported", None], "caches of which the system and an older run tell nothing")


def test_processors():
    for count, expected in ((-1, "(a load of 3.5): "), (1, "on 1 processor): "), (2, "on 2 processors): ")):
        found = found_in(run_of(invented(), num_cpus=count, load_avg=[3.5, 1, 1]))
        tap.check(expected in comparisons.load_warning(found), f"a busy machine of {count} processors",
                  comparisons.load_warning(found))
    tap.check("? at" in dict(report.machine_table(found_in(run_of(invented(), num_cpus=-1))).rows)["processors"],
              "processors of which nothing is known")


def test_merge():
    merged = results.merge([
        run_of({"limit_copy": 100, "limit_copy_nontemporal": 80, "dyt_forward/avx2/portable": 160, "limit_add": 50,
                "dyt_backward/avx2/portable": 200}),
        run_of({"limit_copy": 100, "limit_copy_nontemporal": 400, "dyt_forward/avx2/portable": 300, "limit_add": 50,
                "dyt_backward/avx2/portable": 200})], {"cpu": "a CPU"})
    shown = [(entry["name"].split("/")[0], entry["repetition_index"], entry["repetitions"], entry["family_index"],
              entry.get("time_over_limit")) for entry in merged["benchmarks"]]
    tap.check_equal(shown, [
        ("limit_copy", 0, 2, 0, 1.25), ("limit_copy", 1, 2, 0, 1.0),
        ("limit_copy_nontemporal", 0, 2, 1, 1.0), ("limit_copy_nontemporal", 1, 2, 1, 4.0),
        ("dyt_forward", 0, 2, 2, 2.0), ("dyt_forward", 1, 2, 2, 3.0),
        ("limit_add", 0, 2, 3, 1.0), ("limit_add", 1, 2, 3, 1.0),
        ("dyt_backward", 0, 2, 4, 4.0), ("dyt_backward", 1, 2, 4, 4.0)],
                    "repetitions side by side, each over the faster limit of its own round and direction")
    tap.check_equal(merged["context"]["cpu"], "a CPU", "a context is added")

    merged = results.merge([run_of({"limit_copy 8x8": 100, "dyt_forward/avx2/portable 8x9": 160})])
    tap.check("time_over_limit" not in merged["benchmarks"][1], "no limit of this shape, no multiple of it")
    suffixed = run_of({"limit_copy": 2, "dyt_forward/avx2/portable": 3}, threads="2")
    for one in suffixed["benchmarks"]:
        one["name"] += "/real_time"
        one["real_time"] = 10 if "limit" in one["name"] else 70
    merged = results.merge([suffixed])
    tap.check_equal([(one["name"][-4:], one["time_over_limit"]) for one in merged["benchmarks"]],
                    [("1024", 1.0), ("1024", 7.0)], "several threads: by the wall clock, and the name is plain")
    merged = results.merge([run_of({"limit_copy": 100, "dyt_forward/peer/loops": {
        "error_occurred": True, "error_message": "wrong: far off"}})])
    tap.check("time_over_limit" not in merged["benchmarks"][1], "what failed has no multiple of the limit")
    tap.check_equal(results.Results(merged).errors, {case("dyt_forward/peer/loops"): "wrong: far off"},
                    "it is an error in the results")


def test_statistics():
    spread = Spread.of([5, 1, 2, 100, 3])
    tap.check_equal((spread.median, spread.low, spread.high, spread.least, spread.most), (3, 2, 5, 1, 100),
                    "median, quartiles and extremes")
    tap.check_equal(Spread.of([7]), Spread(7, 7, 7, 7, 7, 1), "of one round")
    tap.check_equal((Spread.of([100, 100, 100]).is_wide(), Spread.of([80, 100, 120]).is_wide(),
                     Spread.of([90, 100, 110]).is_wide()), (False, True, False), "what is too wide to conclude from")

    found = found_in(run_of({"layernorm_forward/avx2/portable": 10, "dyt_forward/avx2/portable": 5,
                             "layernorm_backward/avx2/portable": 30, "dyt_backward/avx2/portable": 35}),
                     run_of({"layernorm_forward/avx2/portable": 80, "dyt_forward/avx2/portable": 20,
                             "layernorm_backward/avx2/portable": 80, "dyt_backward/avx2/portable": 20}),
                     run_of({"layernorm_forward/avx2/portable": 12, "dyt_forward/avx2/portable": 4,
                             "layernorm_backward/avx2/portable": 12, "dyt_backward/avx2/portable": 2}))
    ratio = found.ratio([case("layernorm_forward/avx2/portable")], [case("dyt_forward/avx2/portable")])
    tap.check_equal((ratio.least, ratio.median, ratio.most), (2, 3, 4), "a ratio is taken round by round")
    both = comparisons.ratio(found, ("layernorm", "dyt"), ("forward", "backward"), "avx2", "portable", (32, 1024))
    tap.check_equal((both.least, both.median, both.most), (0.25, 0.25, 1), "of both passes it is that of the sums")
    tap.check_equal(comparisons.ratio(found, ("layernorm", "dyt"), ("forward",), "avx2", "native", (32, 1024)), None,
                    "what was not measured has no ratio")
    tap.check_equal(found.bytes_per_second(case("dyt_backward/avx2/portable")), 3 * 4 * 32768 / 20 * 1e9,
                    "bytes per second")
    tap.check_equal([comparisons.verdict(Spread.of(values)) for values in (
        [1.3, 1.31, 1.32, 1.3], [0.7, 0.7, 0.7, 0.7], [1.01, 0.99, 1.02, 1], [1.5, 2, 2.5, 9])],
                    ["slower", "faster", "same", "slower"], "the verdict on a ratio")
    tap.check_equal([comparisons.verdict(Spread.of(values)) for values in (
        [0.99, 1.3, 1.3, 1.3, 1.3, 1.3], [1.01, 0.7, 0.7, 0.7, 0.7, 0.7], [0.5, 1, 1, 1.9])], ["unclear"] * 3,
                    "one round on the other side makes it unclear, and so does a wide spread around 1")
    tap.check_equal([comparisons.verdict(Spread.of([value] * 3)) for value in (1.3, 0.7, 1)], ["unclear"] * 3,
                    "three rounds are too few")


def invented():
    """A run in which the norms with a reduction win at 32 x 1024, all norms are at the limit at 64 x 4096, and AVX2 is
    once faster than AVX-512."""
    times = {"limit_copy": 100, "limit_copy_nontemporal": 200, "limit_add": 150, "limit_copy 64x4096": 1000,
             "limit_add 64x4096": 1500}
    for isa, factor in (("avx512", 1), ("avx2", 1.5), ("scalar", 10)):
        for direction in ("forward", "backward"):
            for operation, fast, slow in (("layernorm", 200, 1250), ("rmsnorm", 150, 1200), ("dyt", 400, 1240),
                                          ("dyisru", 300, 1000)):
                one = 1 if direction == "forward" else 1.5
                times[f"{operation}_{direction}/{isa}/portable"] = fast * factor * one
                times[f"{operation}_{direction}/{isa}/portable 64x4096"] = slow * factor * one
    times["dyt_forward/avx512/native"] = 160
    times["dyt_forward/avx512/native 64x4096"] = 1250
    times["rmsnorm_backward/avx2/portable"] = 112.5
    times["layernorm_forward/peer/loops"] = 500
    times["rmsnorm_forward/peer/onednn"] = {"error_occurred": True, "error_message": "wrong: off by 0.1"}
    return times


class Page(HTMLParser):
    """Counts tags, references to other places, headings and texts."""

    def __init__(self, text):
        super().__init__()
        self.open, self.unbalanced, self.tags, self.elsewhere, self.headings, self.texts = [], [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("meta", "br", "img", "source"):
            self.open.append(tag)
        self.elsewhere += [value for name, value in attrs
                           if name in ("src", "srcset", "href") and not value.startswith("data:")]

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.unbalanced.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)
        if data.strip():
            self.texts.append(data.strip())


HAVE_JINJA = importlib.util.find_spec("jinja2") is not None


def pages_of(found):
    """report.md and report.html."""
    page = report.compose(found)
    if not HAVE_JINJA:
        return "", ""
    return report.render("report.md", page), report.render("report.html", page)


def rows_of(table):
    return [[str(cell) for cell in row] for row in table.rows]


def test_summary():
    found = found_in(*[run_of(invented(), load_avg=[3.5, 1, 1])] * 4)
    lines = summary.text(found, ["The report: there"]).splitlines()
    tap.check_equal(lines, [
        "Time of one norm / of another, tokens x channels (portable, avx512, one thread)",
        "Forward               32 x 1024     64 x 4096",
        "DyT    / LayerNorm    2.00 slower   0.99 same",
        "DyISRU / LayerNorm    1.50 slower   0.80 faster",
        "DyT    / RMSNorm      2.67 slower   1.03 same",
        "DyISRU / RMSNorm      2.00 slower   0.83 faster",
        "Backward              32 x 1024     64 x 4096",
        "DyT    / LayerNorm    2.00 slower   0.99 same",
        "DyISRU / LayerNorm    1.50 slower   0.80 faster",
        "DyT    / RMSNorm      2.67 slower   1.03 same",
        "DyISRU / RMSNorm      2.00 slower   0.83 faster",
        "GB/s, 64 x 4096      LayerNorm    RMSNorm        DyT     DyISRU  copy, sum",
        "forward                 1677.7     1747.6     1691.3     2097.2     2097.2",
        "backward                1677.7     1747.6     1691.3     2097.2     2097.2",
        "For speed choose RMSNorm, the fastest in 2 of 4 cases.",
        "Warning: The machine was busy (a load of 3.5 on 2 processors): times may be too",
        "long. Ratios suffer less.",
        "The report: there"], "the last screen")
    wide = {}
    for shape in comparisons.SHOWN_SHAPES:
        wide.update({f"{name.partition(' ')[0]} {shape[0]}x{shape[1]}": time for name, time in invented().items()
                     if isinstance(time, (int, float))})
    shapes = " ".join(f"{tokens}x{channels}" for tokens, channels in comparisons.SHOWN_SHAPES)
    noisy = {name: 3 * time if "dyt" in name else time for name, time in wide.items()}
    more = {"shapes, main": shapes, "load_avg": [12.5], "threads": "128"}
    # Three rounds are too few and have a warning of their own, four are enough.
    for partial, rounds, most in (("", 3, 19), ("Interrupted after 12 whole rounds of 14.", 3, 20),
                                  ("Interrupted after 12 whole rounds of 14.", 4, 20)):
        runs = [run_of(wide, **more, partial=partial), run_of(noisy), run_of(wide), run_of(noisy)]
        found = found_in(*runs[:rounds])
        lines = summary.text(found, ["The report: there"]).splitlines()
        tap.check(len(lines) <= most and max(map(len, lines)) <= summary.WIDTH,
                  f"with four shapes and all warnings it has at most {most} lines, and is narrow", "\n".join(lines))
    tap.check("28 of 104 times vary by more than 15% between rounds. A \"?\" marks a ratio that the rounds do not "
              "settle." in " ".join(lines) and "listed under" not in " ".join(lines),
              "how far the rounds can be trusted", "\n".join(lines))
    tap.check("?" in lines[2] and "slower" not in lines[2], "on what the rounds disagree, or are too few", lines[2])

    def answer_with(**times):
        found = found_in(*[run_of({**invented(), **times})] * 4)
        return comparisons.answer(found, "avx512"), comparisons.others(found, "avx512")

    tap.check_equal(answer_with(), ("For speed choose RMSNorm, the fastest in 2 of 4 cases.",
                                    "Typically LayerNorm takes 1.2 times as long, DyISRU 1.4, DyT 1.9."),
                    "the fastest norm, and the others in the median case")
    faster = {f"dyisru_{direction}/avx512/portable": 100 for direction in ("forward", "backward")}
    tap.check_equal(answer_with(**faster)[0], "For speed choose DyISRU, the fastest in all 4 cases.",
                    "another norm that is the fastest")
    level = {"dyisru_forward/avx512/portable": 160, "dyisru_backward/avx512/portable": 240}
    tap.check_equal(answer_with(**level), ("For speed choose DyISRU, the fastest in 2 of 4 cases.",
                                           "Typically RMSNorm takes 1.1 times as long, LayerNorm 1.2, DyT 1.9."),
                    "of two that are the fastest equally often, the one that typically is")
    same = {f"{operation}_{direction}/avx512/portable{shape}": 100 for direction in ("forward", "backward")
            for operation in ("layernorm", "rmsnorm", "dyt", "dyisru") for shape in ("", " 64x4096")}
    tap.check_equal(answer_with(**same), ("All norms are equally fast.", ""), "when all are level")
    few = found_in(*[run_of(invented())] * 3)
    tap.check("too few" in comparisons.answer(few, "avx512") and not comparisons.others(few, "avx512"),
              "three rounds answer nothing")
    one = found_in(*[run_of({"dyt_forward/avx512/portable": 100})] * 4)
    tap.check("does not compare" in comparisons.answer(one, "avx512"), "nor does a single norm")
    nothing = found_in(run_of({"limit_copy": 100}))
    tap.check("does not compare" in summary.text(nothing, []), "a run without norms says so")


def test_pages():
    more = {"peer, pytorch": "absent: no Python has it", "peer, sleef_u10": "present: its tanh",
            "compiler flags": "-O3 -fsafe; avx512: -mwide -O2"}
    times = {**invented(), "layernorm_forward/peer/loops 64x4096": 2000, "dyt_forward/peer/loops 64x4096": 1000}
    found = found_in(*[run_of(times, **more)] * 4)
    text, page_text = pages_of(found)
    tap.check("For speed choose RMSNorm, the fastest in 2 of 4 cases (2 shapes, forward and backward) in the portable "
              "mode on avx512. Typically LayerNorm takes" in " ".join(text.split()), "the answer says where it holds",
              text)
    for part in ("| RMSNorm forward   | onednn |", "wrong: off by 0.1", "absent: not here",
                 "| LayerNorm forward | loops  |", "9.8.7", "plain C <honest>", "within 0.125 of the largest",
                 "measured: 53 cases and 5 limits (copies and sums) of",
                 "loops: present: as one writes; 3 cases", "sleef_u10: present: its tanh; not compared: it has none of",
                 "| all     | -O3 -fsafe |", "| avx512  | -mwide -O2 |", "- native: A mode in which"):
        tap.check(part in text, f"report.md has: {part}", text)
    page = Page(page_text)
    tap.check(not page.unbalanced and not page.open, "report.html is well formed", f"{page.unbalanced} {page.open}")
    tap.check_equal([page.elsewhere, "script" in page.tags, "link" in page.tags], [[], False, False],
                    "report.html needs nothing else")
    tap.check("plain C &lt;honest&gt;" in page_text, "what is shown is not taken for HTML")
    tap.check_equal(page.headings, ["Throughput on each instruction set", "How near to the limit", "Beside other code",
                                    "All figures", "The machine and the run"], "the order of the page")
    tap.check("Blue: LayerNorm and RMSNorm need sums over each row." in page.texts
              and any(one.startswith("The dashed line is the limit: the time to copy") for one in page.texts),
              "it says what the colours and the line are", str(page.texts))
    for part in ("1.24 x, 19 ns", "1677.7 GB/s", "copy", "sum of two tensors", "DyT or DyISRU is slower",
                 "2 times the limit or more", "the other is faster", report.WORDS["portable"]):
        tap.check(part in page.texts, f"report.html has: {part}", str(page.texts))
    tap.check("oneDNN (not here), PyTorch (no Python has it), SLEEF's tanh (it has none of the cases of this run)."
              in " ".join(page.texts) and "the rounds do not tell" not in page.texts,
              "it says what it does not show, and explains what it shows", str(page.texts))

    shown = {kind for table in report.compose(found)["tables"] for kind in table.kinds() if kind}
    tap.check_equal(shown - set(report.MEANINGS), set(), "every colour of a cell is explained")
    names = {mode for *_, mode in operations.KERNELS} | set(operations.OPERATIONS) - set(operations.CORE)
    tap.check_equal(names - set(report.WORDS), set(), "and so is every mode, and every norm without bars")

    noisy = {**invented(), "dyt_forward/avx512/portable": 700}
    text, page_text = pages_of(found_in(run_of(invented(), load_avg=[3.5, 1, 1]), run_of(noisy), run_of(noisy)))
    for one in (text, page_text):
        one = html.unescape(" ".join(one.split()))
        tap.check("The machine was busy (a load of 3.5" in one and "Only 3 rounds" in one
                  and "1 of 51 times varies by more than 15% between rounds (listed under \"Cases whose rounds "
                  "disagree\")." in one and "A \"?\" marks" not in one, "warnings are shown", one)
    alone = found_in(*[run_of({"dyt_forward/peer/loops": 1000, "dyt_forward/peer/onednn": {
        "error_occurred": True, "error_message": "wrong: far off"}})] * 4)
    tap.check_equal(rows_of(report.peer_table(alone, None)),
                    [["DyT forward", "loops", "262.1"], ["DyT forward", "onednn", "wrong"]],
                    "the others alone have their GB/s")
    pages_of(alone)
    pages_of(found_in(run_of({"limit_copy": 100})))


def test_panels():
    found = found_in(*[run_of(invented())] * 4)
    forward, backward = report.answer_panels(found, "avx512", (32, 1024))
    tap.check_equal([(bar.label, bar.value, bar.text, bar.kind) for bar in forward.groups[0][1]],
                    [("LayerNorm", 2, "2.00 x, 6 ns", "reduction"),
                     ("RMSNorm", 1.5, "1.50 x, 5 ns", "reduction"),
                     ("DyT", 4, "4.00 x, 12 ns", "elementwise"),
                     ("DyISRU", 3, "3.00 x, 9 ns", "elementwise")], "the answer: a bar for each norm")
    tap.check_equal([forward.line, forward.line_label, backward.line_label], [1, "copy", "sum of two tensors"],
                    "the limit is a line")
    tap.check_equal([forward.percent(2), forward.percent(1)], [50, 25], "bars and lines have one scale")
    tap.check_equal(forward.columns(), 2 + round(0.85 * len("4.00 x, 12 ns")), "there is room for the longest text")
    without = {name: time for name, time in invented().items() if not name.startswith("limit")}
    forward = report.answer_panels(found_in(*[run_of(without)] * 4), "avx512", (32, 1024))[0]
    tap.check_equal([forward.line, forward.groups[0][1][0].text], [0, "6 ns"], "without a limit, times")

    panel = report.Panel("", [("", [report.Bar("", 4, "", "")]), ("", [report.Bar("", 1, "", "")])], own_scales=True)
    tap.check_equal([panel.percent(bars[0].value, bars) for _, bars in panel.groups], [100, 100],
                    "groups can have scales of their own")

    forward = report.throughput_panels(found, (32, 1024))[0]
    tap.check_equal([(label, [bar.label for bar in bars]) for label, bars in forward.groups],
                    [(norm, ["avx512", "avx2", "scalar"]) for norm in ("LayerNorm", "RMSNorm", "DyT", "DyISRU")],
                    "throughput: a bar for each instruction set")
    tap.check_equal(forward.groups[0][1][1].text, f"{2 * 4 * 32768 / 300:.1f} GB/s", "in GB/s")

    more = {"dyt_forward/peer/sleef_u10": 800, "dyt_forward/peer/sleef_u35": 600, "dyt_forward/peer/loops": 500}
    peers = report.peer_panels(found_in(*[run_of({**invented(), **more})] * 4), "avx512", (32, 1024))[0]
    tap.check_equal([(label, [bar.label for bar in bars]) for label, bars in peers.groups],
                    [("LayerNorm", ["libdynnorm", "plain C"]), ("DyT", ["libdynnorm", "SLEEF's tanh", "plain C"])],
                    "others: one bar for all variants, and none of what is wrong")
    tap.check_equal(peers.groups[1][1][1].value, 2 * 4 * 32768 / 600, "it is that of the fastest")
    more["dyisru_forward/peer/loops"] = 150
    peers = report.peer_panels(found_in(run_of({**invented(), **more})), "avx512", (32, 1024))
    tap.check("native mode" not in str(peers), "the native mode has no bar where it was not measured")
    more["dyisru_forward/avx512/native"] = 200
    peers = report.peer_panels(found_in(*[run_of({**invented(), **more})] * 4), "avx512", (32, 1024))[0]
    tap.check_equal([[(bar.label, bar.value) for bar in bars] for label, bars in peers.groups if label[:2] == "Dy"],
                    [[("libdynnorm", 2 * 4 * 32768 / 400), ("SLEEF's tanh", 2 * 4 * 32768 / 600),
                      ("plain C", 2 * 4 * 32768 / 500)],
                     [("libdynnorm", 2 * 4 * 32768 / 300), ("native mode", 2 * 4 * 32768 / 200),
                      ("plain C", 2 * 4 * 32768 / 150)]], "DyISRU's native mode has a bar, DyT's has none")


def test_tables():
    found = found_in(*[run_of(invented())] * 4)
    rows = {tuple(row[:3]): row[3:] for row in rows_of(report.ratio_table(found, "avx512"))}
    tap.check_equal(rows["DyT / LayerNorm", "native", "forward + backward"][0], "1.52",
                    "where a mode has a forward kernel only, backward is the portable one")
    tap.check_equal(rows["DyT / RMSNorm", "portable", "forward + backward"], ["2.67", "1.03"], "a row of the answer")
    table = report.narrower_table(found, "avx512", "avx2")
    tap.check_equal([table.head[3], rows_of(table)],
                    ["time, avx512 / avx2", [["RMSNorm backward", "portable", "32 x 1024", "2.00", "1"]]],
                    "a narrower instruction set that is faster")
    tap.check_equal([table.title for table in report.all_tables(found, "avx512") if "narrower" in table.title],
                    ["Where a narrower instruction set is faster: avx2 than avx512"],
                    "shown for two sets only if the narrower one is")
    slow_once = {**invented(), "rmsnorm_backward/avx2/portable": 300}
    slow_once = found_in(*[run_of(invented())] * 4, run_of(slow_once))
    tap.check_equal(report.narrower_table(slow_once, "avx512", "avx2").rows, [], "not where one round says otherwise")
    tap.check_equal(report.narrower_table(found_in(*[run_of(invented())] * 3), "avx512", "avx2").rows, [],
                    "nor by three rounds")
    rows = {tuple(row[:2]): row[2:] for row in rows_of(report.peer_table(found, "avx512"))}
    tap.check_equal([rows["RMSNorm forward", "onednn"], rows["LayerNorm forward", "loops"]],
                    [["wrong", "-"], ["2.50", "-"]], "a wrong peer is not compared, a right one is")
    tap.check(report.WHY_NATIVE not in report.peer_table(found, "avx512").note, "without DyISRU the note is shorter")
    more = {"dyisru_forward/peer/loops": 150, "dyt_forward/peer/loops": 100, "dyisru_forward/avx512/native": 200}
    table = report.peer_table(found_in(*[run_of({**invented(), **more})] * 4), "avx512")
    tap.check_equal([row for row in rows_of(table) if row[0].startswith("Dy")],
                    [["DyISRU forward", "loops", "0.50", "-"], ["DyISRU forward, native", "loops", "0.75", "-"],
                     ["DyT forward", "loops", "0.25", "-"]], "DyISRU is compared in the native mode, too")
    page = report.compose(found_in(*[run_of({**invented(), **more})] * 4))
    tap.check_equal([report.WHY_NATIVE in table.note, page["why_native"], report.compose(found)["why_native"]],
                    [True, report.WHY_NATIVE, ""], "and the report says why, where it is")
    tap.check_equal([report.limit_cell(Spread.of([value])).kind for value in (1, 1.3, 1.6, 2, 5)],
                    ["near", "near", "", "far", "far"], "what is near to the limit, and what is far from it")
    text = report.isa_cell(found, case("dyt_backward/avx2/portable"), case("dyt_backward/scalar/portable"))
    tap.check(text.endswith(" (6.7x)"), "how many times as fast as scalar", text)

    noisy = {**invented(), "layernorm_forward/avx512/portable": 500}
    other = {**invented(), "layernorm_forward/avx512/portable": 120}
    found = found_in(run_of(invented()), run_of(noisy), run_of(other))
    tap.check(["layernorm_forward/f32/avx512/portable at 32 x 1024", "95%"] in rows_of(report.wide_table(found)),
              "a wide spread is named", str(report.wide_table(found)))
    tap.check_equal(report.ratio_table(found, "avx512").rows[0][3].text[-1:], "?",
                    "a ratio on which the rounds disagree is marked")

    threaded = run_of(invented(), threads="2")
    for one in threaded["benchmarks"]:
        one["busy_threads"] = 1 if one["name"].startswith("dyt_backward") and "tokens:32/" in one["name"] else 2
    tap.check_equal(rows_of(report.splitting_table(found_in(*[threaded] * 4))), [["backward", "32 x 1024", "1"]],
                    "where threads had no work")


def test_models():
    times = {f"dyt_{direction}/avx512/portable 64x4096": time for direction, time in (("forward", 6400),
                                                                                     ("backward", 12800))}
    found = found_in(*[run_of(times, **{"shapes, a model": "64x4096", "shapes, LLaMA 7B": "64x4096"})] * 4)
    tap.check_equal([report.model_table(found, "avx512", direction).rows for direction in ("forward", "backward")],
                    [[[model, "64 x 4096", time] for model in ("a model", "LLaMA 7B")] for time in ("100", "200")],
                    "models: nanoseconds a token for one norm")
    tap.check_equal([[(label, [bar.text for bar in bars]) for label, bars in panel.groups]
                     for panel in report.model_panels(found, "avx512")],
                    [[("LLaMA 7B: 65 x RMSNorm, 4096 channels", [text])] for text in ("6,500 ns", "13,000 ns")],
                    "and for all norms of a known model")
    times["rmsnorm_forward/avx512/portable 64x4096"] = 100
    panel = report.model_panels(found_in(run_of(times, **{"shapes, LLaMA 7B": "64x4096"})), "avx512")[0]
    tap.check_equal([(bar.label, bar.strong) for bar in panel.groups[0][1]], [("RMSNorm", True), ("DyT", False)],
                    "the norm that the model has is marked")
    tap.check_equal({name: model.norms for name, model in report.MODELS.items()},
                    {"GPT-2": 25, "BERT-large": 49, "LLaMA 7B": 65, "LLaMA 13B": 81, "LLaMA 65B": 161,
                     "Gemma 2 2B": 105}, "how many norms the models have")
    shapes = (HERE / "shapes.c").read_text(encoding="utf-8")
    tap.check(all(f'"{name}"' in shapes for name in report.MODELS), "all known models are measured")
    rows = list(results.csv_rows(found))
    shown = dict(zip(rows[0], rows[1]))
    tap.check_equal([shown[key] for key in ("time_ns", "bytes_per_second", "tokens_per_second")],
                    ["6400", f"{2 * 4 * 64 * 4096 / 6400 * 1e9:.6g}", "1e+07"], "results.csv has the rates")


def engines_run(**more):
    """A run of what engines need: bfloat16 takes twice as long in the caches and half as long beyond, float16 as long
    as floats."""
    times = {"limit_copy": 50, "limit_copy:bf16": 25, "limit_copy 4096x4096": 5000, "limit_add 4096x4096": 6000}
    for shape, half in (("", 2), (" 4096x4096", 0.5)):
        time = 10000 if shape else 100
        for operation, factor in (("layernorm", 3), ("rmsnorm", 2), ("dyt", 5), ("dyisru", 4)):
            for direction in ("forward", "backward"):
                def add(kind, times_floats, isa="avx512"):
                    times[f"{operation}_{direction}:{kind}/{isa}/portable{shape}"] = time * factor * times_floats
                for kind, of_type in (("f32", 1), ("bf16", half), ("f16", 1)):
                    add(kind, of_type)
                    add(kind, 2 * of_type, "avx2")
                    for way, ratio in (("residual_apart", 1.5), ("residual", 1.2), ("residual_by_rows", 1),
                                       ("i8_rows", 3), ("i8_given", 2), ("row_plain", 1), ("row_descriptor", 1.6),
                                       ("row_prepared", 0.8)):
                        if kind != "f16" and direction == "forward":
                            add(f"{kind}-{way}", ratio * of_type)
                for way, ratio in (("one_thread", 1), ("threads", 0.5)):
                    add(f"f32-{way}", ratio / 1000)  # by the wall clock, which entry() makes a thousand times as long
    times["layernorm_forward:bf16/peer/onednn"] = 1200
    times["layernorm_forward:f16/peer/onednn"] = {"error_occurred": True, "error_message": "unable: not here"}
    return run_of(times, **{"shapes, main": "", **{f"shapes, {name}": "32x1024 4096x4096" for name in engines.SETS},
                            "threads of the executor": "2", "peer tolerance, bf16": "0.25", **more})


def test_engines():
    tap.check_equal(results.parse("dyt_forward/bf16-i8_rows/avx2/brief/tokens:3/channels:5"),
                    Case("dyt", "forward", "avx2", "brief", 3, 5, "bf16", "i8_rows"), "the name of another call")
    tap.check_equal(results.parse("dyt_forward/f64/avx2/portable/tokens:3/channels:5"), None, "an unknown type")
    tap.check_equal([results.bytes_moved(case("dyt_forward/avx2/portable", (3, 5))._replace(type=kind, way=way))
                     for kind, way in (("bf16", ""), ("f32", "residual"), ("bf16", "i8_given"))], [60, 240, 45],
                    "bytes that are moved")
    found = found_in(*[engines_run()] * 4)
    bf16 = case("rmsnorm_forward/avx512/portable")._replace(type="bf16")
    tap.check_equal([found.over_limit[bf16][0], found.over_limit[bf16._replace(type="f32")][0]], [16, 4],
                    "a limit moves as many bytes as the tensors have")
    wall = case("dyt_forward/avx512/portable")._replace(way="threads")
    tap.check_equal([found.time(wall).median, wall in found.over_limit], [250, False], "threads: by the wall clock")
    tap.check_equal([found.ordinary().isas, len(found.ordinary().times)], [["avx512", "avx2"], 35],
                    "the ordinary cases are those of floats")

    listed = engines.blocks(found, "avx512")
    shown = {name: {row.words: {norm: round(spread.median, 3) for norm, spread in row.spreads.items()}
                    for row in block.rows} for name, block in listed.items()}
    norms = operations.CORE
    tap.check_equal(list(shown), list(engines.SETS), "a block for each set")
    tap.check_equal([shown["types"]["bf16 / f32", direction, "4096 x 4096"] for direction in ("forward", "backward")],
                    [dict.fromkeys(norms, 0.5)] * 2, "types beside floats")
    tap.check_equal([shown["residual"][f"fused / {way}", "bf16", "forward", "32 x 1024"]
                     for way in ("add, call", "by rows")],
                    [dict.fromkeys(norms, ratio) for ratio in (0.8, 1.2)], "a residual")
    tap.check_equal(shown["int8"]["8 bits / f32", "scale given", "32 x 1024"], dict.fromkeys(norms, 2), "integers")
    tap.check_equal(shown["executor"]["2 threads / 1", "f32", "backward", "32 x 1024"], dict.fromkeys(norms, 0.5),
                    "threads")
    tap.check_equal(shown["prepared"]["prepared / descriptor", "bf16", "1 x 1024"], dict.fromkeys(norms, 0.5), "rows")

    lines = summary.text(found, ["The report: there"]).splitlines()
    tap.check(len(lines) == summary.HEIGHT - 1 and max(map(len, lines)) <= 80, "the last screen", "\n".join(lines))
    tap.check_equal(lines[0], "Time / time (avx512, one thread)                 LayerNorm RMSNorm    DyT DyISRU",
                    "its head")
    tap.check("bf16 / f32: forward 4096 x 4096                      0.50    0.50   0.50   0.50" in lines
              and "does not compare" not in " ".join(lines), "a row", "\n".join(lines))
    tap.check(any(re.fullmatch(r"\d+ more of these stand in the report\.", line) for line in lines), "it says that there "
              "is more", "\n".join(lines))
    few = found_in(*[engines_run(load_avg=[9, 9, 9])] * 3)
    lines = summary.text(few, ["The report: there"]).splitlines()
    tap.check(len(lines) <= 19 and "0.50?" in " ".join(lines), "three rounds settle nothing", "\n".join(lines))
    huge = [engines_run(**{"shapes, residual": "4294967296x4294967296"})]
    huge[0]["benchmarks"] = [json.loads(json.dumps(one).replace("tokens:32/channels:1024",
                                                                "tokens:4294967296/channels:4294967296"))
                             for one in huge[0]["benchmarks"]]
    lines = engines.lines(found_in(*huge * 4), "avx512", 20)
    tap.check(lines and max(map(len, lines)) <= 80, "no row is wider than the terminal", "\n".join(lines))
    both = engines_run(**{"shapes, main": "32x1024"})
    lines = summary.text(found_in(*[both] * 4), ["The report: there"]).splitlines()
    tap.check(len(lines) <= 19 and "Time of one norm" in lines[0]
              and any(line.startswith("Time / time") for line in lines), "a run of a set and of what engines need shows "
              "both", "\n".join(lines))

    page = report.compose(found)
    tap.check(page["answer"].startswith("bfloat16 takes 0.50 times as long as floats (forward 4096 x 4096), and 2.00 "
                                        "times (forward 32 x 1024). A residual in the call takes")
              and page["answer"].endswith("Each figure is the median of the norms."), "the answer", page["answer"])
    tap.check(page["is_full"] and not report.compose(found_in(*[both] * 4))["is_full"],
              "it points to --full only where that would measure more")
    tap.check_equal([table.title for table in page["engine_tables"]],
                    [*(f"{title}, avx512" for title in engines.TITLES.values()),
                     "To 8 bits without looking at the row, avx512"], "the tables of the section")
    rows = {tuple(row[:3]): row[3:] for row in rows_of(page["engine_tables"][-1])}
    tap.check_equal(rows["DyT / RMSNorm", "f32", "32 x 1024"], ["2.50", "1.67"], "what it is worth to know the scale")
    rows = {tuple(row[:3]): row[3:] for row in rows_of(engines.peer_table(found, "avx512"))}
    tap.check_equal([rows["LayerNorm forward", kind, "onednn"] for kind in ("bf16", "f16")],
                    [["2.00", "-"], ["unable", "-"]], "others in 16 bits")
    rows = {tuple(row[:3]): row[3:] for row in rows_of(engines.rate_table(found, "types", "forward"))}
    tap.check_equal(rows["RMSNorm", "bf16", "avx2"][0], f"{32768 / 800:.2f} ({4 * 32768 / 800:.1f})", "figures")
    rows = {tuple(row[:3]): row[3:] for row in rows_of(engines.rate_table(found, "prepared", "forward"))}
    tap.check_equal(rows["RMSNorm", "f32-row_descriptor", "avx512"][0], "10", "nanoseconds a call")
    tap.check_equal([(panel.title, [bar.text for bar in panel.groups[1][1]]) for panel in page["type_panels"][:1]],
                    [("Forward, 4096 x 4096", ["838.86 G/s, 6710.9 GB/s", "1677.72 G/s, 6710.9 GB/s",
                                               "838.86 G/s, 3355.4 GB/s"])], "bars of elements a second")
    rows = [dict(zip(results.CSV_COLUMNS, row)) for row in list(results.csv_rows(found))[1:]]
    tap.check({("limit", "bf16", ""), ("library", "bf16", "residual"), ("peer", "f16", "")}
              <= {(row["kind"], row["type"], row["way"]) for row in rows}, "results.csv has types and ways")
    same = compare.summary(found, found)
    tap.check(same.startswith("0 of "), "they are compared with an earlier run", same)
    if not HAVE_JINJA:
        return
    text, page_text = pages_of(found)
    page = Page(page_text)
    tap.check(page.headings[0] == "What engines need around a norm" and not page.unbalanced and not page.open,
              "report.html has the section", str(page.headings))
    tap.check("### Element types, avx512" in text and "unable: not here" in text, "and so has report.md", text)
    tap.check("What engines need" not in pages_of(found_in(*[run_of(invented())] * 4))[1],
              "a run of norms has no such section")
    brief = engines_run()
    brief["benchmarks"].append(entry("dyt_forward/bf16/avx512/brief/tokens:32/channels:1024", 700))
    text, _ = pages_of(found_in(*[brief] * 4))
    tap.check("| bf16, brief / f32 | forward" in text and "- brief: " in text, "another mode has rows", text)


def test_plots():
    times = {}
    for shape in ("1x1024", "16x1024", "256x1024", "512x512", "128x2048", "200x1024", "100x2047"):
        times[f"limit_copy {shape}"] = 100
        for operation in ("layernorm", "dyt"):
            times[f"{operation}_forward/avx512/portable {shape}"] = 150 if operation == "dyt" else 120
    found = found_in(*[run_of(times)] * 3)
    tap.check_equal([(what, shapes) for what, _, _, _, shapes in plots.series_of_shapes(found)],
                    [("by size, 1024 channels", [(1, 1024), (16, 1024), (200, 1024), (256, 1024)]),
                     ("by channels, tensors of 1 MB", [(512, 512), (256, 1024), (128, 2048)])],
                    "the series that were measured")
    places = plots._apart([1, 1, 1.01, 8], 1, 8)
    tap.check_equal([sorted(places) == [places[0], places[1], places[2], places[3]], places[3]], [True, 1],
                    "labels stay in order and in the plot")
    tap.check(all(b - a > 0.07 for a, b in zip(places, places[1:])), "labels do not overlap", str(places))
    for values in ([7.9, 8, 8], [1, 1, 1], [0.5, 1, 20], [2] * 4, [1] * 30):
        places = plots._apart(values, 1, 8)
        tap.check(0 <= min(places) and max(places) <= 1 and len(set(places)) == len(places),
                  f"nor do they leave the plot: {values}", str(places))
    places = plots._apart([2, 2, 8], 1, 8)
    tap.check(abs(sum(places[:2]) / 2 - 1 / 3) < 1e-9 and places[2] == 1, "labels give way up and down alike",
              str(places))

    request = plots.Request("a caption", "x", "y", [("1", 1), ("4", 4)], [
        ("DyT", [(1, Spread.of([1.5])), (4, Spread.of([2]))]), ("RMSNorm", [(1, Spread.of([3])), (4, Spread.of([4]))])])
    script = "\n".join(plots._commands(request, plots.THEMES["light"], "there"))
    tap.check("$data0 << END\n1 1.5 1.5 1.5\n4 2 2 2\nEND" in script and "set output 'there'" in script,
              "gnuplot gets the medians and quartiles", script)
    tap.check("set label 'DyT' at graph 1.02," in script and "set label 'RMSNorm' at graph 1.02," in script
              and "unset key" in script, "names stand at the lines", script)
    tap.check("set ylabel 'y'" in script and "'1.5 x' 1.5" in script, "the y axis is labelled", script)

    which = plots.shutil.which
    plots.shutil.which = lambda name: None
    tap.check_equal(report.compose(found)["why_no_plots"], plots.ABSENT, "without gnuplot the report says so")
    plots.shutil.which = which
    if not which("gnuplot"):
        tap.skip("the plots", "gnuplot is not installed")
        return
    drawn, why = plots.over_limit(found, "avx512")
    tap.check_equal([[plot.caption for plot in drawn], why],
                    [["Forward, by size, 1024 channels", "Forward, by channels, tensors of 1 MB"], ""],
                    "against size and against channels")
    pictures = [base64.b64decode(url.partition(",")[2]).decode() for plot in drawn for url in plot.urls.values()]
    tap.check(all("<svg" in picture and "LayerNorm" in picture for picture in pictures)
              and all(plot.urls["light"] != plot.urls["dark"] for plot in drawn),
              "pictures for light and for dark pages")
    if not HAVE_JINJA:
        return
    page = Page(pages_of(found)[1])
    tap.check_equal([page.tags.count("picture"), page.elsewhere, page.unbalanced, page.open], [2, [], [], []],
                    "the page with plots is well formed, and holds them")


def markdown(listed):
    return "\n\n".join(map(tables.markdown, listed))


def test_probes():
    def call(operation, by, hot, cold):
        return {"operation": operation, "by": by, "channels": 288, "hot": hot, "cold": cold, "cold_low": cold - 100,
                "cold_high": cold + 100}

    calls = [{"flags": "-O9"}, call("nothing", "clock", 0.3, 27), call("rmsnorm", "library", 41.4, 1900),
             call("rmsnorm", "prepared", 39.3, 1800), call("rmsnorm", "loop", 28.2, 1500)]
    text = markdown(probes.calls(calls))
    tap.check("| RMSNorm | 1 x 288 |      41 |          - |       39 |            28 | 1900 (1800 to 2000) | 1500 (1400 to 1600) |" in text
              and "takes 27 ns" in text and "with -O9. These are one set of flags" in " ".join(text.split()),
              "calls, hot and cold, the loop's and the clock", text)
    with_calls = run_of(invented())
    titles = [table.title for table in report.compose(found_in(with_calls))["tables"]]
    tap.check("One token" not in titles, "a run without calls has none")
    merged = results.merge([with_calls])
    merged["one_token"] = calls
    titles = [table.title for table in report.compose(results.Results(merged))["tables"]]
    tap.check("One token" in titles, "a run with calls shows them")
    calls[1:1] = [call("dyt", "library", 80.4, 1700), {**call("dyt", "library", 1, 2), "channels": 768}]
    hot, cold = report.one_token_panels(results.Results(merged))
    tap.check_equal([[(label, [(bar.label, bar.text) for bar in bars]) for label, bars in panel.groups]
                     for panel in (hot, cold)],
                    [[("288 channels", [("DyT", "80 ns"), ("RMSNorm", "41 ns"), ("in plain C", "28 ns")]),
                      ("768 channels", [("DyT", "1 ns")])],
                     [("288 channels", [("DyT", "1,700 ns"), ("RMSNorm", "1,900 ns"), ("in plain C", "1,500 ns")]),
                      ("768 channels", [("DyT", "2 ns")])]],
                    "and draws a bar for each norm and for its loop, hot and cold")

    model = report.split_model_table(results.Results(merged))
    tap.check_equal(model.rows, [["DyT", "0.0", "0.0", "0.0", "0.0"]], "the model of split rows is of the longest rows")
    calls[2:2] = [{**call("layernorm", "library", 1500, 2), "channels": 4096}]
    model = report.split_model_table(results.Results(merged))
    # 1.5; and 3, 6 and 9 messages of 2 us, and 7, 63 and 511 times 16 doubles at 12.5 GB/s
    tap.check_equal(model.rows, [["LayerNorm", "1.5", "7.6", "14.1", "24.7"]], "it has an exchange of 4 doubles a block")
    tap.check("This is a model, not a measurement" in model.note and "4096 channels" in model.note, "and says so")

    def special(operation, data, occurs, ratio, tokens=64, element_type="f32"):
        return {"type": element_type, "tokens": tokens, "operation": operation, "direction": "backward",
                "mode": "portable", "data": data, "occurs": occurs, "ordinary": 100, "special": 100 * ratio}

    cliffs = [{"isa": "avx2", "channels": 1024}, special("dyt", "all NaN", True, 2.9),
              special("rmsnorm", "all NaN", True, 3.1), special("dyt", "x of 1e33", False, 9.9),
              special("rmsnorm", "x of 1e33", False, 10.1), special("dyt", "saturated", True, 1),
              special("rmsnorm", "all NaN", True, 9.9, 1), special("dyt", "all NaN", True, 10.1, 1),
              special("rmsnorm", "all NaN", True, 2, 64, "bf16")]
    lines = markdown(probes.cliffs(cliffs)).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    tap.check_equal([row for row in rows if set(row[0]) - set("-:")],
                    [["data", "DyT", "RMSNorm"], ["all NaN", "2.9", "3.1 !!"], ["[x of 1e33]", "9.9 !", "10.1 !!"],
                     ["saturated", "1.0", "-"], ["data", "RMSNorm", "DyT"], ["all NaN", "9.9 !", "10.1 !!"],
                     ["data", "RMSNorm"], ["all NaN", "2.0"]],
                    "cliffs are marked, those beyond what is accepted twice")
    tap.check_equal([line.split(", ", 1)[1] for line in lines if line.startswith("#") and "portable" in line],
                    ["portable, 64 rows of f32", "portable, 1 row of f32", "portable, 64 rows of bf16"],
                    "each shape and type has a table")
    tap.check("5 of 8 are beyond 3, 3 beyond what is accepted." in " ".join(lines), "and counted")
    tap.check_equal([record["data"] for record in probes.too_slow(cliffs)], ["all NaN", "x of 1e33", "all NaN"],
                    "those that are too slow")

    def stored(streams, streams_if_kept, cached, streamed, cached_and_read, streamed_and_read):
        return {"operation": "rmsnorm", "direction": "forward", "tokens": 64, "channels": 4096, "streams": streams,
                "streams_if_kept": streams_if_kept, "cached": cached, "streamed": streamed,
                "cached_and_read": cached_and_read, "streamed_and_read": streamed_and_read}

    text = markdown(probes.streaming([{"level2": 1 << 19}, stored(1, 0, 100, 50, 100, 80),
                                            stored(1, 1, 100, 50, 100, 80), stored(1, 0, 100, 110, 100, 120),
                                            stored(0, 0, 100, 90, 100, 101)]))
    rows = [[cell.strip() for cell in line.split("|")[3:-1]] for line in text.splitlines() if "RMSNorm forward" in line]
    tap.check_equal(rows, [["streams unless kept", "2", "0.50", "0.80 +"], ["streams", "2", "0.50", "0.80"],
                           ["streams unless kept", "2", "1.10 *", "1.20 *"], ["-", "2", "0.90 *", "1.01"]],
                    "where the choice of streaming costs time")


def compared(old, new, python=sys.executable):
    """What compare.py says of two runs, each {name: times in the rounds}, and its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        for name, run in (("old", old), ("new", new)):
            rounds = [run_of({"limit_copy": 100, **dict(zip(run, times))}) for times in zip(*run.values())]
            pathlib.Path(folder, f"{name}.json").write_text(json.dumps(results.merge(rounds)), encoding="utf-8")
        done = subprocess.run([python, HERE / "compare.py", "old.json", "new.json"], cwd=folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.stdout, done.returncode


def test_compare():
    dyt, rmsnorm = "dyt_forward/avx2/portable", "rmsnorm_forward/avx2/portable"
    old = {dyt: [200, 202, 198, 200, 201], rmsnorm: [150, 200, 250, 150, 250]}
    new = {dyt: [240, 241, 239, 242, 240], rmsnorm: [250, 220, 150, 240, 230]}
    pythons = [python for python in (sys.executable, "/usr/bin/python3") if subprocess.run(
        [python, "-c", "import scipy"], stderr=subprocess.DEVNULL, check=False).returncode == 0]
    if pythons:
        said, status = compared(old, new, pythons[0])
        tap.check("slower  +20%  2 +-0% -> 2.4 +-0%  dyt_forward avx2 portable 32x1024" in said, "what became slower",
                  said)
        tap.check("rmsnorm" not in said, "what chance explains did not change", said)
        tap.check("0 of 2 cases became faster, 1 slower." in said and status == 1, "how many did", said)
        said, status = compared(new, old, pythons[0])
        tap.check("faster  -17%" in said and "1 of 2 cases became faster, 0 slower" in said, "what became faster", said)
        said, status = compared(old, old, pythons[0])
        tap.check("0 of 2 cases became faster, 0 slower." in said and status == 0, "a run agrees with itself", said)
        few = [{name: times[:3] for name, times in run.items()} for run in (old, new)]
        tap.check(compare.TOO_FEW in compared(*few, pythons[0])[0], "three rounds are too few for the test")
    else:
        tap.skip("what SciPy's test says", "no Python here can import scipy")

    test, compare.mannwhitneyu = compare.mannwhitneyu, None
    runs = [found_in(*[run_of({"limit_copy": 100, dyt: time, rmsnorm: 100}) for time in times])
            for times in ([200] * 4, [300] * 4)]
    said = compare.text(*runs)
    tap.check("slower  +50%" in said and compare.NO_SCIPY in said, "without SciPy the medians, and it says so", said)
    tap.check_equal(compare.summary(*runs), "0 of 2 cases seem faster, 1 slower.", "in one line")
    said = compare.text(*runs, most=0)
    tap.check("+50%" not in said and said.startswith("and 1 more, which bench/compare.py lists."), "no more lines than it "
              "is told", said)
    faster_machine = found_in(*[run_of({"limit_copy": 50, dyt: 100, rmsnorm: 50})] * 4)
    tap.check("0 of 2 cases seem faster, 0 slower" in compare.text(runs[0], faster_machine),
              "what counts is the multiple of the limit")
    wide = [found_in(*[run_of({"limit_add": 100, "centered_dyisru_backward/avx512/portable": time})] * 4)
            for time in (234.5, 345.6)]
    said = compare.text(*wide)
    tap.check("centered_dyisru_backward avx512 portable 32x1024" in " ".join(said.split()) and
              max(map(len, said.splitlines())) <= 80, "no line is wider than the terminal", said)
    other = found_in(run_of({"limit_copy": 100, "dyt_forward/avx512/portable": 200}))
    tap.check_equal(compare.text(runs[0], other), "The runs have no case in common.", "runs of other cases")
    compare.mannwhitneyu = test
    for arguments, status in ((["no such file", "nor this"], 2), (["one"], 2), (["--help"], 0)):
        done = subprocess.run([sys.executable, HERE / "compare.py", *arguments], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        tap.check(done.returncode == status and "Traceback" not in done.stdout,
                  f"compare.py {' '.join(arguments)}: exit status {status}", done.stdout)


def test_program():
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/results.json", "w", encoding="utf-8") as file:
            json.dump(results.merge([run_of(invented())] * 3), file)
        pathlib.Path(folder, "jinja2.py").write_text("raise ImportError\n", encoding="utf-8")
        printed = tap.check_runs([sys.executable, HERE / "report.py", folder], "report.py without Jinja2",
                                 env={**os.environ, "PYTHONPATH": folder})
        tap.check(report.NO_JINJA in (printed or "") and "GB/s, 64 x 4096" in printed
                  and not pathlib.Path(folder, "report.html").exists(), "tells the summary and what is missing",
                  printed)
        printed = tap.check_runs([sys.executable, HERE / "report.py", folder], "report.py writes the report again")
        tap.check(not HAVE_JINJA or all(pathlib.Path(folder, f"report.{kind}").exists() for kind in ("html", "md")),
                  "both of it")
    for arguments in ([], ["--no-such"], ["a", "b"]):
        done = subprocess.run([sys.executable, HERE / "report.py", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        tap.check_equal(done.returncode, 2, f"report.py {' '.join(arguments)}: an error of usage")
    done = subprocess.run([sys.executable, HERE / "report.py", "/nonexistent"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    tap.check(done.returncode == 2 and done.stdout.startswith("/nonexistent/results.json: no results of a run: ")
              and len(done.stdout.splitlines()) == 1, "a folder without results: a message", done.stdout)


test_names()
test_caches()
test_processors()
test_merge()
test_statistics()
test_summary()
if HAVE_JINJA:
    test_pages()
else:
    tap.skip("the pages", "Jinja2 is not installed")
test_panels()
test_tables()
test_models()
test_engines()
test_plots()
test_probes()
test_compare()
test_program()
tap.done()
