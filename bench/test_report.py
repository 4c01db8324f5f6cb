#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests results.py and report.py with invented figures."""
import json
import pathlib
import subprocess
import sys
import tempfile
import types
from html.parser import HTMLParser

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "test/harness"), str(HERE)]
import tap  # noqa: E402 (found in the folders above)
import compare  # noqa: E402
import pages  # noqa: E402
import plots  # noqa: E402
import probes  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402
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
    """One round: {name without type and shape: nanoseconds}, at 32 x 1024 unless the name has a shape."""
    entries = []
    for name, time in times.items():
        name, _, shape = name.partition(" ")
        tokens, channels = (shape or "32x1024").split("x")
        kernel, *rest = name.split("/")
        full = "/".join([kernel, "f32", *rest, f"tokens:{tokens}", f"channels:{channels}"])
        entries.append(entry(full, time) if isinstance(time, (int, float)) else entry(full, 0, **time))
    return {"context": {**CONTEXT, **context}, "benchmarks": entries}


MODES = ("portable", "native")


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
    both = report.advantage(found, ("layernorm", "dyt"), ("forward", "backward"), "avx2", "portable", (32, 1024))
    tap.check_equal((both.least, both.median, both.most), (1, 4, 4), "of both passes it is that of the sums")
    tap.check_equal(report.advantage(found, ("layernorm", "dyt"), ("forward",), "avx2", "native", (32, 1024)), None,
                    "what was not measured has no ratio")
    tap.check_equal(found.bytes_per_second(case("dyt_backward/avx2/portable")), 3 * 4 * 32768 / 20 * 1e9,
                    "bytes per second")
    tap.check_equal([report.verdict(Spread.of(values)) for values in (
        [1.3, 1.31, 1.32, 1.3], [0.7, 0.7, 0.7, 0.7], [1.01, 0.99, 1.02, 1], [1.5, 2, 2.5, 9])],
                    ["wins", "loses", "level", "wins"], "the verdict on a ratio")
    tap.check_equal([report.verdict(Spread.of(values)) for values in (
        [0.99, 1.3, 1.3, 1.3, 1.3, 1.3], [1.01, 0.7, 0.7, 0.7, 0.7, 0.7], [0.5, 1, 1, 1.9])], ["unclear"] * 3,
                    "one round on the other side makes it unclear, and so does a wide spread around 1")
    tap.check_equal([report.verdict(Spread.of([value] * 3)) for value in (1.3, 0.7, 1)], ["unclear"] * 3,
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
    """Counts tags and references to other places."""

    def __init__(self, text):
        super().__init__()
        self.open, self.unbalanced, self.tags, self.elsewhere = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("meta", "br", "line", "path", "circle", "use", "polygon"):
            self.open.append(tag)
        self.elsewhere += [value for name, value in attrs
                           if name in ("src", "href", "xlink:href") and not value.startswith("#")]

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open and self.open[-1] == tag:
            self.open.pop()
        elif tag not in ("line", "path", "circle", "use", "polygon"):
            self.unbalanced.append(tag)


def test_report():
    found = found_in(*[run_of(invented())] * 4)
    words = report.answer_words(found)
    for sentence in (
            # Against DyT: forward portable, backward portable, forward native; against DyISRU: forward and backward.
            "is faster than a norm with a reduction (LayerNorm, RMSNorm) in 5 of 20 comparisons, slower in 9, level "
            "(within 5%) in 6, and in 0 the rounds disagree",
            "It is slower in most of those at 32 x 1024.",
            "At best, DyT (forward, native) is 1.25 times as fast as LayerNorm, at 32 x 1024.",
            "At 32 x 1024 it is computation that binds it: 1 / sqrt costs more there than the second pass",
            "Where DyISRU's forward pass is faster, it takes 1.0 times as long as the copy, and the norm with the "
            "reduction 1.2 times. At 64 x 4096 the bandwidth of the memory is all that holds it.",
            "At worst, DyT (forward, portable) takes 2.67 times as long as RMSNorm, at 32 x 1024.",
            "At 64 x 4096 the bandwidth of the memory binds: no norm's forward pass takes more than 1.25 times as long "
            "as the copy, so"):
        tap.check(sentence in words, f"the answer says: {sentence}", words)
    tap.check_equal(report.pair_sentence(report.comparisons(found, "avx512"), ("layernorm", "dyisru"), "portable"),
                    "DyISRU against LayerNorm, portable: forward faster at 64 x 4096, by a factor of 1.25; slower at "
                    "32 x 1024, by a factor of 1.50. backward faster at 64 x 4096, by a factor of 1.25; slower at "
                    "32 x 1024, by a factor of 1.50.", "where one norm wins and loses")
    def words_with(changes, **context):
        return report.answer_words(found_in(*[run_of({**invented(), **changes}, **context)] * 4))

    large = {"type": "Unified", "level": 2, "size": 2 << 20, "num_sharing": 1}
    tap.check("At 64 x 4096 the bandwidth of the L2 cache binds" in words_with({}, caches=[*CONTEXT["caches"], large]),
              "what fits a cache is bound by it, not by the memory")
    fast = {name: 110 for name in invented() if "forward/avx512" in name and name.split("/")[-1] in MODES}
    tap.check("At 32 x 1024 the bandwidth of the L2 cache and at 64 x 4096 the bandwidth of the memory bind: no"
              in words_with(fast, caches=[{**large, "size": 1 << 20}]), "where two bandwidths bind")
    shared = {**large, "level": 3, "num_sharing": 2}
    tap.check("At 64 x 4096 the bandwidth of the L3 cache or of the memory binds" in words_with({}, caches=[shared]),
              "of a shared cache nobody knows how much is ours")
    tap.check("At 64 x 4096 the bandwidth binds" in words_with({}, caches=[]), "nothing is known of the caches")
    words = words_with({"dyt_forward/avx512/portable 64x4096": 850})
    tap.check("binds: no norm" not in words, "what is faster than the limit is not bound by it", words)
    words = words_with({"dyisru_forward/avx512/portable 64x4096": 890})
    tap.check("DyISRU's forward pass is faster" not in words, "nor is it held by it", words)
    words = words_with({"dyisru_forward/avx512/portable": 80})
    tap.check("Where DyISRU's forward pass is faster, it takes 1.0 times as long as the copy" in words,
              "where the limit is one, it is told all the same", words)
    table = report.answer_table(found, "avx512")
    row = next(row for row in table.rows if row[:3] == ["LayerNorm / DyT", "native", "both"])
    tap.check_equal(str(row[3]), "0.66", "where a mode has a forward kernel only, backward is the portable one")
    row = next(row for row in table.rows if row[:3] == ["RMSNorm / DyT", "portable", "both"])
    tap.check_equal([str(cell) for cell in row[3:]], ["0.38", "0.97"], "a row of the answer")
    said = ["RMSNorm backward, portable: avx2 is faster than avx512 at 32 x 1024, by a factor of 2.00."]
    tap.check_equal(report.narrower_wins(found), said, "a narrower instruction set that is faster")
    slow_once = {**invented(), "rmsnorm_backward/avx2/portable": 300}
    tap.check_equal(report.narrower_wins(found_in(*[run_of(invented())] * 4, run_of(slow_once))), [],
                    "not where one round says otherwise")
    tap.check_equal(report.narrower_wins(found_in(*[run_of(invented())] * 3)), [], "nor by three rounds")
    blocks = report.compose(found)
    text = pages.markdown(blocks)
    for part in ("| RMSNorm forward   | onednn |", "wrong: off by 0.1", "absent: not here",
                 "| LayerNorm forward | loops  |", "9.8.7", "plain C <honest>", "within 0.125 of the largest",
                 "In none of 51 cases does the middle half of the rounds spread over more than 15 %."):
        tap.check(part in text, f"report.md has: {part}", text)
    line = next((line for line in text.splitlines() if line.startswith("| RMSNorm forward   | onednn")), "")
    tap.check_equal([cell.strip() for cell in line.split("|")[3:5]], ["wrong", "-"], "a wrong peer is not compared")
    line = next((line for line in text.splitlines() if line.startswith("| LayerNorm forward | loops")), "")
    tap.check_equal([cell.strip() for cell in line.split("|")[3:5]], ["2.50", "-"], "a right one is")

    tap.check_equal([report.limit_cell(Spread.of([value])).kind for value in (1, 1.3, 1.6, 2, 5)],
                    ["near", "near", "", "far", "far"], "what is near to the limit, and what is far from it")
    text = report.isa_cell(found, case("dyt_backward/avx2/portable"), case("dyt_backward/scalar/portable"))
    tap.check(text.endswith(" (6.7x)"), "how many times as fast as scalar", text)

    page = Page(pages.html(blocks))
    tap.check(not page.unbalanced and not page.open, "report.html is well formed", f"{page.unbalanced} {page.open}")
    tap.check_equal([page.elsewhere, "script" in page.tags, "link" in page.tags], [[], False, False],
                    "report.html needs nothing else")
    tap.check("plain C &lt;honest&gt;" in pages.html(blocks), "what is shown is not taken for HTML")

    noisy = invented()
    noisy["dyt_forward/avx512/portable"] = 700
    noisy["layernorm_forward/avx512/portable"] = 500
    other = invented()
    other["layernorm_forward/avx512/portable"] = 120
    found = found_in(run_of(invented(), load_avg=[3.5, 1, 1]), run_of(noisy), run_of(other))
    text = pages.markdown(report.compose(found))
    tap.check("layernorm_forward/f32/avx512/portable at 32 x 1024: 95%" in text, "a wide spread is named", text)
    tap.check("load average was 3.50" in text, "a busy machine is told of", text)
    summary = " ".join(report.summary(found, pathlib.Path("there")).split())
    tap.check("Warning: When it began" in summary, "and so it is in the summary", summary)
    count = f"In {len(report.wide_cases(found)[0])} of 51 cases the "
    tap.check(count in " ".join(text.split()) and count in summary, "both count the same wide cases",
              f"{count}\n{summary}\n{text}")
    tap.check("3 rounds cannot tell" in text and "3 rounds cannot tell" in summary, "both warn of too few rounds",
              summary)
    table = report.answer_table(found, "avx512")
    tap.check_equal(table.rows[0][3].text[-1:], "?", "a ratio on which the rounds disagree is marked")

    without = {name: time for name, time in invented().items() if not name.startswith("limit")}
    found = found_in(*[run_of(without)] * 4)
    text, summary = pages.markdown(report.compose(found)), report.summary(found, pathlib.Path("there"))
    tap.check("no limit was measured" in text and "In none of 0" not in text and "No limit was measured" in summary,
              "without the limits it says that the spread is not judged", summary + text)

    tap.check("How the work was split" not in text, "one thread splits nothing")
    threaded = run_of(invented(), threads="2")
    for one in threaded["benchmarks"]:
        one["busy_threads"] = 1 if one["name"].startswith("dyt_backward") and "tokens:32/" in one["name"] else 2
    text = pages.markdown(report.compose(found_in(*[threaded] * 4)))
    tap.check("Not all 2 threads had work in these cases:\n\n- backward at 32 x 1024: 1\n" in text,
              "where threads had no work", text)

    alone = found_in(*[run_of({"dyt_forward/peer/loops": 1000, "dyt_forward/peer/onednn": {
        "error_occurred": True, "error_message": "wrong: far off"}})] * 4)
    for text in (pages.markdown(report.compose(alone)), report.summary(alone, pathlib.Path("there"))):
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "DyT forward" in line]
        tap.check_equal(rows, [["DyT forward", "loops", "262.1"], ["DyT forward", "onednn", "wrong"]],
                        "the others alone have their GB/s")

    for one in threaded["benchmarks"]:
        one["busy_threads"] = 1 if "forward" in one["name"] and "tokens:32/" in one["name"] else 2
    words = report.answer_words(found_in(*[threaded] * 4))
    tap.check("At 64 x 4096 the bandwidth of the memory binds" in words and "it is computation" not in words,
              "nothing binds threads without work", words)

    nothing = found_in(run_of({"limit_copy": 100}))
    tap.check("no figures to compare" in pages.markdown(report.compose(nothing)), "a run without norms says so")


def test_models():
    times = {f"dyt_{direction}/avx512/portable 64x4096": time for direction, time in (("forward", 6400),
                                                                                     ("backward", 12800))}
    found = found_in(*[run_of(times, **{"shapes, a model": "64x4096"})] * 4)
    tables = [block for block in report.models(found) if isinstance(block, pages.Table)]
    tap.check_equal([table.rows for table in tables],
                    [[["a model", "64 x 4096", "100"]], [["a model", "64 x 4096", "200"]]],
                    "models: nanoseconds for one token")
    rows = list(results.csv_rows(found))
    shown = dict(zip(rows[0], rows[1]))
    tap.check_equal([shown[key] for key in ("time_ns", "bytes_per_second", "tokens_per_second")],
                    ["6400", f"{2 * 4 * 64 * 4096 / 6400 * 1e9:.6g}", "1e+07"], "results.csv has the rates")


def test_plotted(found):
    """Tests the commands that gnuplot is given."""
    scripts = []

    def run(_, **options):
        scripts.append(options["input"])
        return subprocess.CompletedProcess([], 0, "<svg></svg>", "")

    process, plots.subprocess = plots.subprocess, types.SimpleNamespace(run=run, PIPE=subprocess.PIPE)
    which, plots.shutil.which = plots.shutil.which, lambda name: name
    drawn = plots.answer(found, "avx512", report.advantage)
    plots.subprocess, plots.shutil.which = process, which
    tap.check_equal(len(drawn.pictures), 2, "a plot against size and one against channels")
    data = [[line.split()[:2] for line in script.split("<< END\n")[1].split("END")[0].splitlines()]
            for script in scripts]
    tap.check_equal(data, [[["4096", "1.5"], ["65536", "1.5"], ["1048576", "1.5"]],
                           [["512", "1.5"], ["1024", "1.5"], ["2048", "1.5"]]],
                    "it is the time of the norm with the reduction over that of the elementwise norm")


def test_plots():
    sweep = {"shapes, size": "1x1024 16x1024 256x1024", "shapes, channels": "512x512 256x1024 128x2048"}
    times = {}
    for shape in ("1x1024", "16x1024", "256x1024", "512x512", "128x2048"):
        for operation in ("layernorm", "dyt"):
            times[f"{operation}_forward/avx512/portable {shape}"] = 100 if operation == "dyt" else 150
    found = found_in(*[run_of(times, **sweep)] * 3)
    test_plotted(found)
    which = plots.shutil.which
    plots.shutil.which = lambda name: None
    tap.check("gnuplot is not installed" in pages.html(report.compose(found)), "without gnuplot the report says so")
    tap.check("gnuplot is not installed" in pages.markdown(report.compose(found)), "in Markdown too")
    plots.shutil.which = which
    if not which("gnuplot"):
        tap.skip("the plots", "gnuplot is not installed")
        return
    text = pages.html(report.compose(found))
    page = Page(text)
    tap.check_equal(page.tags.count("figure"), 2, "against size and against channels")
    tap.check(not page.unbalanced and not page.open and not page.elsewhere, "the page with plots is well formed",
              f"{page.unbalanced} {page.open} {page.elsewhere}")
    tap.check("black" not in text, "the plots take the colour of the page's text")


def test_probes():
    def call(operation, by, hot, cold):
        return {"operation": operation, "by": by, "channels": 288, "hot": hot, "cold": cold, "cold_low": cold - 100,
                "cold_high": cold + 100}

    calls = [{"flags": "-O9"}, call("nothing", "clock", 0.3, 27), call("rmsnorm", "library", 41.4, 1900),
             call("rmsnorm", "loop", 28.2, 1500)]
    text = pages.markdown(probes.calls(calls))
    tap.check("| RMSNorm | 1 x 288 |      41 |            28 | 1.90 (1.80 to 2.00) | 1.50 (1.40 to 1.60) |" in text
              and "takes 27 ns" in text and "with -O9." in text, "calls, hot and cold, the loop's and the clock", text)
    with_calls = run_of(invented())
    tap.check("One token" not in pages.markdown(report.compose(found_in(with_calls))), "a run without calls has none")
    merged = results.merge([with_calls])
    merged["one_token"] = calls
    tap.check("## One token" in pages.markdown(report.compose(results.Results(merged))), "a run with calls shows them")

    def special(operation, data, occurs, ratio):
        return {"operation": operation, "direction": "backward", "mode": "portable", "data": data, "occurs": occurs,
                "ordinary": 100, "special": 100 * ratio}

    cliffs = [{"isa": "avx2", "tokens": 64, "channels": 1024}, special("dyt", "all NaN", True, 2.9),
              special("rmsnorm", "all NaN", True, 3.1), special("dyt", "x of 1e33", False, 9.9),
              special("rmsnorm", "x of 1e33", False, 10.1), special("dyt", "saturated", True, 1)]
    lines = pages.markdown(probes.cliffs(cliffs)).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    tap.check_equal([rows[0], *rows[2:]],
                    [["data", "DyT", "RMSNorm"], ["all NaN", "2.9", "3.1 !!"], ["[x of 1e33]", "9.9 !", "10.1 !!"],
                     ["saturated", "1.0", "-"]], "cliffs are marked, those beyond what is accepted twice")
    tap.check_equal(lines[-1], "3 of 5 are beyond 3, 2 beyond what is accepted.", "and counted")
    tap.check_equal([record["data"] for record in probes.too_slow(cliffs)], ["all NaN", "x of 1e33"],
                    "those that are too slow")

    def stored(streams, streams_if_kept, cached, streamed, cached_and_read, streamed_and_read):
        return {"operation": "rmsnorm", "direction": "forward", "tokens": 64, "channels": 4096, "streams": streams,
                "streams_if_kept": streams_if_kept, "cached": cached, "streamed": streamed,
                "cached_and_read": cached_and_read, "streamed_and_read": streamed_and_read}

    text = pages.markdown(probes.streaming([{"level2": 1 << 19}, stored(1, 0, 100, 50, 100, 80),
                                            stored(1, 1, 100, 50, 100, 80), stored(1, 0, 100, 110, 100, 120),
                                            stored(0, 0, 100, 90, 100, 101)]))
    rows = [[cell.strip() for cell in line.split("|")[3:-1]] for line in text.splitlines() if "RMSNorm forward" in line]
    tap.check_equal(rows, [["streams unless kept", "2", "0.50", "0.80 +"], ["streams", "2", "0.50", "0.80"],
                           ["streams unless kept", "2", "1.10 *", "1.20 *"], ["-", "2", "0.90 *", "1.01"]],
                    "where the choice of streaming costs time")


def test_compare():
    found = found_in(*[run_of({"limit_copy": 100, "dyt_forward/avx2/portable": 200 + 50 * (index % 2),
                               "rmsnorm_forward/avx2/portable": 150}) for index in range(4)])
    tap.check_equal([found.halves_differ(case(f"{name}_forward/avx2/portable")) for name in ("dyt", "rmsnorm")],
                    [0.25, 0], "how far the even rounds and the odd ones lie apart")
    text = " ".join(pages.markdown(report.reliability(found)).split())
    tap.check("odd ones differ by 12.5% in the middle of 2 cases, by at most 25.0% in nine of ten, and by at most 25% "
              "(dyt_forward/f32/avx2/portable at 32 x 1024). In 1 they differ by more than 5%" in text,
              "the report says so", text)
    slower = found_in(*[run_of({"limit_copy": 100, "dyt_forward/avx2/portable": 225,
                                "rmsnorm_forward/avx2/portable": 300})] * 4)
    tap.check_equal(compare.differences(found, slower), {case("dyt_forward/avx2/portable"): 0,
                                                         case("rmsnorm_forward/avx2/portable"): 1},
                    "two runs are compared by their medians")
    text = "\n".join(compare.sentences(found, slower, "this and that"))
    tap.check("100% rmsnorm_forward/f32/avx2/portable at 32 x 1024" in text and "Warning: the runs do not" in text,
              "runs that do not agree", text)
    tap.check("Warning" not in "\n".join(compare.sentences(found, found, "this and that")), "a run agrees with itself")
    faster_machine = found_in(*[run_of({"limit_copy": 50, "dyt_forward/avx2/portable": 112.5,
                                        "rmsnorm_forward/avx2/portable": 75})] * 4)
    tap.check(compare.agree(found, faster_machine), "what counts is the multiple of the limit")
    other = found_in(run_of({"limit_copy": 100, "dyt_forward/avx512/portable": 200}))
    tap.check_equal(compare.sentences(found, other, "this and that"), ["This and that have no case in common."],
                    "runs of other cases")
    with tempfile.TemporaryDirectory() as folder:
        for name, times in (("one", {"dyt_forward/avx2/portable": 200}), ("two", {"dyt_forward/avx2/portable": 230})):
            pathlib.Path(folder, name).mkdir()
            pathlib.Path(folder, name, "results.json").write_text(json.dumps(results.merge([run_of(times)] * 3)),
                                                                  encoding="utf-8")
        for arguments, status in ((["one", "one"], 0), (["one", "two"], 1), (["one", "three"], 1), (["one"], 2)):
            done = subprocess.run([sys.executable, HERE / "compare.py", *arguments], cwd=folder, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            tap.check(done.returncode == status and "Traceback" not in done.stdout,
                      f"compare.py {' '.join(arguments)}: exit status {status}", done.stdout)


def test_program():
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/results.json", "w", encoding="utf-8") as file:
            json.dump(results.merge([run_of(invented())] * 3), file)
        tap.check_runs([sys.executable, HERE / "report.py", folder], "report.py writes the report again")
        tap.check(pathlib.Path(folder, "report.html").exists(), "both of it")
    for arguments in ([], ["--no-such"], ["a", "b"]):
        done = subprocess.run([sys.executable, HERE / "report.py", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        tap.check_equal(done.returncode, 2, f"report.py {' '.join(arguments)}: an error of usage")


test_names()
test_merge()
test_statistics()
test_report()
test_models()
test_plots()
test_probes()
test_compare()
test_program()
tap.done()
