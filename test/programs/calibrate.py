#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests dynnorm-calibrate on data with a known answer, on the papers' sample, against the same sums in Python, and on
every kind of file, good and bad.

usage: calibrate.py PATH-OF-DYNNORM-CALIBRATE SOURCE-FOLDER
"""
import json
import math
import os
import pathlib
import pty
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import xml.dom.minidom

import npy
import tap

program, source = sys.argv[1], pathlib.Path(sys.argv[2])
U = 2.0 ** -24  # half the distance from 1 to the next float
CURVES = {"dyt": "alpha", "dyisru": "beta", "centered_dyisru": "beta"}
NAMES = {"dyt": "DyT", "dyisru": "DyISRU", "centered_dyisru": "centered DyISRU"}
BORDERS = {"dyt": "abs_x_up_to", "dyisru": "abs_x_up_to", "centered_dyisru": "abs_x_minus_mean_up_to"}
SEED = int(os.environ.get("DYNNORM_TEST_SEED", "20250321"), 0)


def run(*arguments, **options):
    return subprocess.run([program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, **options)


def refuse(name):
    """Python's reader accepts NaN and Infinity, which JSON does not have."""
    raise ValueError(f"{name} is not JSON")


def calibrate(*arguments):
    """Returns what --json prints. If the program fails, reports a failed case and returns None."""
    done = run(*arguments, "--json")
    if not tap.check(done.returncode == 0 and done.stderr == "", f"{' '.join(map(str, arguments))}: runs",
                     f"exit status {done.returncode}\n{done.stderr}"):
        return None
    try:
        return json.loads(done.stdout, parse_constant=refuse)
    except ValueError as error:
        tap.check(False, f"{' '.join(map(str, arguments))}: prints JSON", f"{error}\n{done.stdout}")
        return None


def write(content, name="activations.npy"):
    pathlib.Path(name).write_bytes(content)
    return name


def to_float(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def check_near(got, expected, tolerance, name):
    tap.check(got is not None and abs(got - expected) <= tolerance, f"{name} = {got}, expected {expected:.9g}",
              f"the tolerance is {tolerance:.3g}")


# ---- Known answers ---------------------------------------------------------------------------------------------------

def check_beta(result, beta):
    """Checks beta for data that lie on a DyISRU, with |x| up to sqrt(3 beta). Data and values are exact to
    (4 + 8) u |y|. y changes with log(beta) by y / 2 beta / (beta + x^2), which is at least an eighth of y. So least
    squares is off by at most 96 u. The fit adds 2 u of its own, and the rounding of scale and eps another 2 u."""
    dyisru = result["dyisru"]
    check_near(dyisru["beta"], beta, 100 * U * beta, "beta")
    check_near(dyisru["r_squared"], 1, 1e-10, "R^2")
    tap.check_equal(dyisru["initial"], float(f"{beta:.3g}"), "the initial value is beta to three digits")
    tap.check(result["dyt"]["mean_abs_residual"] > 1000 * dyisru["mean_abs_residual"], "and DyT is not the curve")


def test_rmsnorm_is_dyisru(generator):
    """One element of C is not 0: RMSNorm is x / sqrt(x^2 / C + eps), DyISRU of beta = C eps."""
    channels, tokens, eps = 16, 500, to_float(0.03)
    beta = channels * eps
    values = [0.0] * channels * tokens
    for token in range(tokens):
        x = math.sqrt(beta) * math.exp(generator.uniform(-4, 0.5)) * generator.choice((-1, 1))
        values[token * channels + generator.randrange(channels)] = x
    result = calibrate(write(npy.array(values, (tokens, channels))), "--norm", "rmsnorm", "--eps", eps)
    if result:
        check_beta(result["all"], beta)
        check_near(result["scale"], 4, 0, "the scale")


def test_layernorm_is_dyisru(generator):
    """Two channels, x and -x: LayerNorm is x / sqrt(x^2 + eps)."""
    eps = to_float(5.0)
    halves = [math.sqrt(eps) * math.exp(generator.uniform(-4, 0.5)) for _ in range(500)]
    values = [value for x in halves for value in (to_float(x), -to_float(x))]
    result = calibrate(write(npy.array(values, (500, 2))), "--norm", "layernorm", "--eps", eps)
    if result:
        check_beta(result["all"], eps)
        tap.check_equal(result["outliers"], {"elements": 0, **dict.fromkeys(CURVES)}, "no outliers can be there")


def test_outliers_are_dyisru(generator):
    """The other elements' squares add up to 99 in each token, so RMSNorm of the outlier is a DyISRU with
    beta = 99 + C eps."""
    channels, values = 100, []
    for _ in range(200):
        token = [generator.choice((-1.0, 1.0)) for _ in range(channels)]
        token[generator.randrange(channels)] = generator.choice((-1, 1)) * generator.uniform(4, 17)
        values += token
    result = calibrate(write(npy.array(values, (200, channels))), "--norm", "rmsnorm", "--eps", 0.01)
    if result:
        tap.check_equal(result["outliers"]["elements"], 200, "the outliers are found")
        check_beta(result["outliers"], 100)


def test_layernorm_is_centered_dyisru(generator):
    """All but one element of a token are its mean plus or minus 1. The outlier lies u off the mean of the whole token,
    and LayerNorm of it is sqrt(C - 1) u / sqrt(beta + u^2) with beta = (C - 1) (C - 1 + C eps) / C, whatever the mean
    is."""
    channels, eps, values = 101, to_float(0.01), []
    for _ in range(200):
        mean = float(generator.randrange(-1000, 1000))
        token = [mean + sign for sign in (1.0, -1.0) for _ in range((channels - 1) // 2)]
        token.insert(generator.randrange(channels), mean + generator.choice((-1, 1)) * generator.uniform(4, 17))
        values += token
    result = calibrate(write(npy.array(values, (200, channels))), "--norm", "layernorm", "--eps", eps, "--fit",
                       "outliers")
    if result:
        beta = (channels - 1) * (channels - 1 + channels * eps) / channels
        # x is rounded to 2^-14 around 1000, of at least 4.
        centered = result["outliers"]["centered_dyisru"]
        tap.check_equal(result["outliers"]["elements"], 200, "the outliers around any mean are found")
        check_near(centered["beta"], beta, 2e-5 * beta, "beta of the centered DyISRU")
        check_near(centered["r_squared"], 1, 1e-8, "R^2")
        tap.check(result["outliers"]["dyisru"]["r_squared"] < 0.9, "and DyISRU is not the curve")


def test_scales(generator):
    """If x is multiplied by k, alpha is divided by k and beta multiplied by k^2. All else stays the same, up to the
    norm's own error of 4 u before and after."""
    values = [generator.gauss(0, 1) for _ in range(50 * 32)]
    expected = calibrate(write(npy.array(values, (50, 32))), "--eps", 0)
    for exponent in (-120, -60, 60, 120):
        scaled = [math.ldexp(to_float(value), exponent) for value in values]
        result = calibrate(write(npy.array(scaled, (50, 32))), "--eps", 0)
        if not result or not expected:
            continue
        for curve, power in ("dyt", -exponent), ("dyisru", 2 * exponent):
            got, wanted = result["all"][curve], expected["all"][curve]
            best = math.ldexp(wanted[CURVES[curve]], power)
            check_near(got[CURVES[curve]], best, 100 * U * best, f"x by 2^{exponent}: {CURVES[curve]}")
            check_near(got["mean_abs_residual"], wanted["mean_abs_residual"], 8 * U * result["scale"],
                       "and the residual is the same")


def test_tenths_of_all_sizes(generator):
    """Each tenth of |x| holds a tenth of the values, even if the smallest underflow when divided by the largest."""
    values = [generator.choice((-1, 1)) * 10 ** generator.uniform(-44, 38) for _ in range(1000)]
    sizes = sorted({abs(to_float(value)) for value in values})
    values = [math.copysign(size, value) for size, value in zip(sizes, values)]
    generator.shuffle(values)
    values = values[:len(values) // 10 * 10]
    result = calibrate(write(npy.array(values, (len(values) // 10, 10))), "--fit", "all")
    if result:
        tap.check_equal([decile["elements"] for decile in result["all"]["dyt"]["deciles"]], [len(values) // 10] * 10,
                        "values over 82 decades: tenths are tenths")


def sample_rows():
    """The papers' sample, with its last element pushed outwards in steps, S = 0 to 9."""
    text = (source / "examples/outlier_sample.h").read_text()
    sample = [float(value) for value in re.findall(r"-?\d+\.\d+(?=,)", text[text.index("{"):])]
    tap.check_equal(len(sample), 100, "the sample")
    return sum(([*sample[:-1], sample[-1] + 5 * step] for step in range(10)), [])


def test_sample():
    """The outliers of S = 1 to 9 are the papers' points; S = 0 has none. alpha, beta and DyT's residual must agree to
    five digits, DyISRU's residual as far as float allows."""
    path = write(npy.array(sample_rows(), (10, 100)))
    others = [float(value) for value in sample_rows()[:99]]
    others_mean = math.fsum(others) / 99
    # As in test_layernorm_is_centered_dyisru: LayerNorm of the outlier is exactly a centered DyISRU.
    centered_beta = math.fsum((x - others_mean) ** 2 for x in others) * 99 / 100
    for norm, alpha, dyt_residual, beta, dyisru_residual, residual_tolerance in (
            ("layernorm", 0.0486101, 0.327877, 301.060, 0.0048142, 5e-6),
            ("rmsnorm", 0.0490115, 0.333823, 295.7618, 0, 1e-5)):
        result = calibrate(path, "--norm", norm, "--eps", 0, "--fit", "outliers")
        if not result:
            continue
        outliers = result["outliers"]
        tap.check_equal(outliers["elements"], 9, f"{norm}: nine outliers")
        check_near(outliers["dyt"]["alpha"], alpha, 5e-7, f"{norm}: alpha")
        check_near(outliers["dyt"]["mean_abs_residual"], dyt_residual, 5e-6, f"{norm}: DyT's residual")
        check_near(outliers["dyisru"]["beta"], beta, 5e-3, f"{norm}: beta")
        check_near(outliers["dyisru"]["mean_abs_residual"], dyisru_residual, residual_tolerance,
                   f"{norm}: DyISRU's residual")
        if norm == "layernorm":
            centered = outliers["centered_dyisru"]
            check_near(centered["beta"], centered_beta, 5e-3, f"{norm}: beta of the centered DyISRU")
            check_near(centered["mean_abs_residual"], 0, 1e-5, f"{norm}: the centered DyISRU's residual")
        tap.check("all" not in result, "--fit outliers leaves out the other fit")


# ---- The same in Python ----------------------------------------------------------------------------------------------

def curve_value(curve, parameter, scale, x):
    return scale * (math.tanh(parameter * x) if curve == "dyt" else x / math.sqrt(parameter + x * x))


class Expected:
    """The elements of a fit in double: x, x - mean(x), and y after the norm."""

    def __init__(self, points, scale):
        self.points = points  # x, x - mean(x), y, weight, bias
        self.scale = scale

    @staticmethod
    def input(curve, point):
        return point[1 if curve == "centered_dyisru" else 0]

    def borders(self, curve):
        count = len(self.points)
        sizes = sorted(abs(self.input(curve, point)) for point in self.points)
        return [sizes[(tenth * count + 9) // 10 - 1] for tenth in range(1, 11)]

    def residuals(self, curve, parameter, points):
        return [w * curve_value(curve, parameter, self.scale, self.input(curve, point)) + b - y
                for point in points for _, _, y, w, b in (point,)]

    def squares(self, curve, parameter):
        return math.fsum(r * r for r in self.residuals(curve, parameter, self.points))

    def check_residuals(self, got, curve, parameter, points, name):
        """Allows what the bounds of y allow: 4 u of the norm, 8 u of the curve, and u for each of their parameters and
        the bias. Squares may be off accordingly; the spread is a difference of sums no larger than sum(y^2)."""
        tap.check_equal(got["elements"], len(points), f"{name}: elements")
        residuals = self.residuals(curve, parameter, points)
        error = max(16 * U * (abs(w) * max(self.scale, 1) + abs(b)) for _, _, _, w, b in points)
        check_near(got["mean_abs_residual"], math.fsum(map(abs, residuals)) / len(points), error, f"{name}: mean")
        check_near(got["max_abs_residual"], max(map(abs, residuals)), error, f"{name}: largest")
        mean = math.fsum(y for _, _, y, _, _ in points) / len(points)
        spread = math.fsum((y - mean) ** 2 for _, _, y, _, _ in points)
        left = math.fsum(r * r for r in residuals)
        by_left = 2 * error * math.sqrt(len(points) * left) / spread
        by_spread = 2 * error * math.sqrt(len(points) / spread) * left / spread
        tolerance = by_left + by_spread + 1e-8 * left / spread + 1e-9
        check_near(got["r_squared"], 1 - left / spread, tolerance, f"{name}: R^2")

    def check(self, result, name):
        for curve, symbol in CURVES.items():
            got = dict(result[curve], elements=result["elements"])
            best = got[symbol]
            self.check_residuals(got, curve, best, self.points, f"{name}, {curve}")
            for factor in (0.99, 1.01):
                tap.check(self.squares(curve, best * factor) > self.squares(curve, best),
                          f"{name}, {curve}: {factor} of {symbol} is worse")
            borders = self.borders(curve)
            tap.check_equal([to_float(decile[BORDERS[curve]]) for decile in got["deciles"]], borders,
                            f"{name}, {curve}: the deciles")
            low = -1.0
            for decile, border in zip(got["deciles"], borders):
                points = [point for point in self.points if low < abs(self.input(curve, point)) <= border]
                self.check_residuals(decile, curve, best, points, f"{name}, {curve}, up to {border:.3g}")
                low = border


def centered(row):
    mean = math.fsum(row) / len(row)
    return [to_float(x - mean) for x in row]


def normalized(row, norm, eps):
    mean = math.fsum(row) / len(row) if norm == "layernorm" else 0.0
    variance = math.fsum((x - mean) ** 2 for x in row) / len(row)
    return [(x - mean) / math.sqrt(variance + eps) for x in row]


def test_against_python(generator):
    tokens, channels, eps = 400, 24, to_float(1e-3)
    rows = [[to_float(generator.gauss(0.3, 1) * (12 if generator.random() < 0.03 else 1)) for _ in range(channels)]
            for _ in range(tokens)]
    rows[7] = [round(x) for x in rows[7]]  # ties, and zeros
    weight = [to_float(generator.uniform(0.5, 2)) for _ in range(channels)]
    bias = [to_float(generator.uniform(-1, 1)) for _ in range(channels)]
    path = write(npy.array(sum(rows, []), (tokens, channels)))
    weight_path = write(npy.array(weight, (channels,)), "weight.npy")
    bias_path = write(npy.array(bias, (channels,), "<f8"), "bias.npy")
    ones, zeros = [1.0] * channels, [0.0] * channels
    for norm, w, b, options in (("layernorm", ones, zeros, ()), ("rmsnorm", ones, zeros, ()),
                                ("layernorm", weight, bias, ("--weight", weight_path, "--bias", bias_path)),
                                ("layernorm", ones, bias, ("--bias", bias_path)),
                                ("rmsnorm", weight, zeros, ("--weight", weight_path))):
        result = calibrate(path, "--norm", norm, "--eps", eps, *options)
        if not result:
            continue
        scale = math.sqrt(channels - (norm == "layernorm"))
        n = [normalized(row, norm, eps) for row in rows]
        points = [(x, u, w[c] * n[t][c] + b[c], w[c], b[c])
                  for t, row in enumerate(rows) for c, (x, u) in enumerate(zip(row, centered(row)))]
        outliers = [point for point, value in zip(points, sum(n, [])) if abs(value) > 3]
        name = " ".join((norm, *options))
        Expected(points, scale).check(result["all"], f"{name}, all")
        Expected(outliers, scale).check(result["outliers"], f"{name}, outliers")
        smaller = calibrate(path, "--norm", norm, "--eps", eps, *options, "--fit", "outliers", "--outliers-beyond", 2)
        expected = sum(abs(value) > 2 for value in sum(n, []))
        tap.check_equal(smaller and smaller["outliers"]["elements"], expected, f"{name}, beyond 2")


# ---- Files of every kind ---------------------------------------------------------------------------------------------

def test_forms(generator):
    """The same values in other file formats give the same results to the last digit."""
    values = [struct.unpack("<e", struct.pack("<e", generator.gauss(0, 2)))[0] for _ in range(60 * 40)]
    shape = (60, 40)
    expected = calibrate(write(npy.array(values, shape)))

    def check(content, name):
        tap.check_equal(calibrate(write(content)), expected, name)

    for dtype in "<f2", "<f8", ">f2", ">f4", ">f8":
        check(npy.array(values, shape, dtype), f"type {dtype}")
    for other in (3, 20, 40), (2, 3, 5, 2, 40):
        check(npy.array(values, other), f"shape {other}")
    for version in (2, 0), (3, 0):
        check(npy.header(npy.dictionary(shape), version) + npy.data(values), f"format {version}")
    for text in ("{'shape':(60,40),'descr':'<f4','fortran_order':False}",
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (60L, 40L), }",
                 '{ "fortran_order" : False ,\n"shape": ( 60 , 40 , ) , "descr" : "<f4" }   \n'):
        check(npy.header(text) + npy.data(values), f"header {text!r}")


def test_conversions(generator):
    """float16 values are read exactly and float64 values are rounded once, to the same float32, as the deciles show."""
    every_half = [value for bits in range(0x7c00)
                  for value in struct.unpack("<2e", struct.pack("<2H", bits, bits | 0x8000))]
    for values, name in ((every_half, "every float16"), (every_half[:2048], "the float16 below 2^-14")):
        for eps in 0, 1e-5:
            shape = (len(values) // 4, 4)
            expected = calibrate(write(npy.array(values, shape)), "--eps", eps)
            tap.check_equal(calibrate(write(npy.array(values, shape, "<f2")), "--eps", eps), expected, name)
    halfway = [math.ldexp(1 + (2 * generator.getrandbits(23) + 1) * U + generator.choice((-1, 0, 1)) * 2.0 ** -52,
                          exponent)
               for exponent in range(-50, 50) for _ in range(20)]
    expected = calibrate(write(npy.array(halfway, (50, 40))))
    tap.check_equal(calibrate(write(npy.array(halfway, (50, 40), "<f8"))), expected, "float64 between two floats")


def bfloat16_bits(value):
    """The upper half of a float, which loses nothing of a value that bfloat16 has."""
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def test_bfloat16(generator):
    """The bits of bfloat16 are read exactly: as the floats that they are the upper halves of."""
    every_exponent = [bits for exponent in range(255) for bits in (exponent << 7 | 1, exponent << 7 | 0x8055)]
    at_random = [generator.getrandbits(7) | generator.randrange(100, 150) << 7 | generator.getrandbits(1) << 15
                 for _ in range(2000)]
    for bits, name in ((every_exponent, "bfloat16 of every exponent"), (at_random, "bfloat16 at random")):
        shape = len(bits) // 2, 2
        values = [struct.unpack("<f", struct.pack("<I", one << 16))[0] for one in bits]
        expected = calibrate(write(npy.array(values, shape)), "--norm", "rmsnorm")
        for dtype in "<u2", ">u2":
            got = calibrate(write(npy.array(bits, shape, dtype)), "--norm", "rmsnorm", "--bfloat16")
            tap.check_equal(got, expected, f"{name}, {dtype}")
    values = [float(generator.randrange(-64, 64) or 1) for _ in range(3000)]
    bits = list(map(bfloat16_bits, values))
    said = run(write(npy.array(bits, (1000, 3), "<u2")), "--norm", "rmsnorm", "--bfloat16").stdout
    tap.check("1000 tokens x 3 channels of bfloat16" in said, "bfloat16 is named in words", said)
    weight, bias = [0.5, 1.5, -2.0], [1.0, 0.0, -0.25]
    write(npy.array(weight, (3,)), "weight.npy")
    write(npy.array(bias, (3,)), "bias.npy")
    write(npy.array(list(map(bfloat16_bits, weight)), (3,), "<u2"), "weight16.npy")
    expected = calibrate(write(npy.array(values, (1000, 3))), "--weight", "weight.npy", "--bias", "bias.npy")
    for file in "weight.npy", "weight16.npy":
        got = calibrate(write(npy.array(bits, (1000, 3), "<u2")), "--bfloat16", "--weight", file, "--bias", "bias.npy")
        tap.check_equal(got, expected, f"bfloat16 activations, {file} and a bias of floats")


def test_large_file(generator):
    """A file larger than memory, in many chunks, gives the results of the one block that it repeats."""
    if os.environ.get("DYNNORM_TEST_THIN"):
        tap.skip("a large file", "only in tests that are not thinned")
        return
    channels, block_tokens, repetitions = 384, 256, 170
    block = [generator.gauss(0, 1) * (9 if generator.random() < 0.01 else 1) for _ in range(block_tokens * channels)]
    expected = calibrate(write(npy.array(block, (block_tokens, channels))))
    with open("large.npy", "wb") as file:
        file.write(npy.header(npy.dictionary((repetitions, block_tokens, channels))))
        for _ in range(repetitions):
            file.write(npy.data(block))
    # What a small file takes is the program's own, which a sanitizer makes large.
    small = write(npy.array(block, (block_tokens, channels)))
    usages = []
    for file in (small, "large.npy"):
        with open("large.json", "wb") as output:
            child = subprocess.Popen([program, file, "--json"], stdout=output)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = status
        usages.append(usage.ru_maxrss)
        if not tap.check(status == 0, f"{file}: runs"):
            return
    result = json.loads(pathlib.Path("large.json").read_bytes())
    size = os.path.getsize("large.npy")
    more = (usages[1] - usages[0]) * (1 if sys.platform == "darwin" else 1024)
    tap.check(more < size / 4, f"memory for a file of {size >> 20} MiB: {more >> 20} MiB more than for a small one")
    for fit in "all", "outliers":
        tap.check_equal(result[fit]["elements"], repetitions * expected[fit]["elements"], f"{fit}: elements")
        for curve, symbol in CURVES.items():
            got, wanted = result[fit][curve], expected[fit][curve]
            # Each part's gradient is rounded to float, which may move the zero of the slope. The sums are in double.
            check_near(got[symbol], wanted[symbol], 1e-5 * wanted[symbol], f"{fit}: {symbol}")
            check_near(got["mean_abs_residual"], wanted["mean_abs_residual"], 1e-5, f"{fit}: mean |residual|")
            tap.check_equal([decile[BORDERS[curve]] for decile in got["deciles"]],
                            [decile[BORDERS[curve]] for decile in wanted["deciles"]], f"{fit}: the deciles")
    os.remove("large.npy")


def check_bad(content, reason, *options, path="bad.npy"):
    """Checks the message for a bad file, given as the activations, or as the file that the options name."""
    if content is not None:
        write(content, path)
    done = run(*(options or [path]))
    tap.check(done.returncode == 2 and done.stdout == "" and path in done.stderr and reason in done.stderr,
              f"{path}: {reason}", f"exit status {done.returncode}\n{done.stdout}{done.stderr}")


def test_bad_files():
    def with_header(text, bytes_after=24):
        return npy.header(text) + bytes(bytes_after)

    good = npy.array([1, 2, 3, 4, 5, 7], (2, 3))
    check_bad(b"", "not a .npy file")
    os.mkfifo("pipe.npy")
    check_bad(None, "not a regular file", path="pipe.npy")
    check_bad(b"PK\x03\x04" + bytes(100), "not a .npy file")
    check_bad(good[:9], "truncated: it ends inside its header")
    check_bad(good[:40], "truncated: it ends inside its header")
    check_bad(good[:-1], "truncated: its header promises 24 bytes of values, there are 23")
    check_bad(good + b"\0", "its header promises 24 bytes of values, there are 25")
    check_bad(good[:6] + b"\4\0" + good[8:], "version 4.0")
    check_bad(npy.header("{}", (2, 0))[:8] + b"\xff\xff\xff\x7f{}", "bad header: it claims to be")
    for dtype in "<i4", "<c8", "|b1", "<f16", "f4", "", "<", "|S4", "=f4":
        check_bad(with_header(npy.dictionary((2, 3), dtype)), f"of type '{dtype}', not float16")
    check_bad(with_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}"), "records")
    check_bad(with_header(npy.dictionary((2, 3), fortran_order=True)), "Fortran order")
    check_bad(with_header(npy.dictionary((5, 0)), 0), "0 channels")
    check_bad(with_header(npy.dictionary((0, 3)), 0), "0 tokens")
    check_bad(with_header(npy.dictionary((4, 0, 3)), 0), "0 tokens")
    check_bad(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}"), "it has 1 axis")
    check_bad(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4), "it has 0 axes")
    check_bad(with_header(npy.dictionary((2 ** 40, 2 ** 40))), "more values than can be counted")
    check_bad(with_header(npy.dictionary((2 ** 62, 3))), "more values than can be counted")
    check_bad(with_header(npy.dictionary((2 ** 80, 3))), "the length of an axis")
    check_bad(with_header(npy.dictionary((2 ** 61 - 1, 1))), "truncated")
    for text, reason in (
            ("", "'{' expected"), ("{", "a string expected"), ("{'descr", "not a string"),
            ("{'descr' '<f4'}", "':' expected"), ("{'descr': '<f4' 'shape': (2, 3)}", "'}' expected"),
            ("{'descr': '<f4', 'fortran_order': False}", "'shape' is missing"),
            ("{'shape': (2, 3), 'fortran_order': False}", "'descr' is missing"),
            ("{'descr': '<f4', 'shape': (2, 3)}", "'fortran_order' is missing"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}", "'more' is unknown"),
            ("{'descr': '<f4', 'descr': '<f4'}", "'descr' is there twice"),
            ("{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}", "'False' expected"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (6)}", "the shape is not a tuple"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}", "not a tuple"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3LL)}", "')' expected"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3)}", "the length of an axis"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': [2, 3]}", "'(' expected"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} {", "something follows"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}\0", "something follows")):
        check_bad(with_header(text), reason)

    for dtype in "<u2", ">u2":
        check_bad(with_header(npy.dictionary((2, 3), dtype), 12), "the bits of bfloat16, use --bfloat16")
    for dtype in "<f4", "<f2", "|u1", "<u4", "u2", "|u2":
        check_bad(with_header(npy.dictionary((2, 3), dtype)), f"'{dtype}', not uint16 ('<u2'), as --bfloat16 expects",
                  "bad.npy", "--bfloat16")
    for options in ["bad.npy"], ["bad.npy", "--bfloat16"]:
        for dtype in "|V2", "<i2":
            check_bad(with_header(npy.dictionary((2, 3), dtype), 12), "save x.view('uint16') and use --bfloat16",
                      *options)
    check_bad(with_header("{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (2, 3)}"), "not uint16", "bad.npy",
              "--bfloat16")
    check_bad(npy.array([1, 2, 0x7fc0, 4, 5, 6], (2, 3), "<u2"), "NaN at token 0, channel 2", "bad.npy", "--bfloat16")
    check_bad(npy.array([1, 2, 3, 0xff80, 5, 6], (2, 3), ">u2"), "infinity at token 1, channel 0", "bad.npy",
              "--bfloat16")

    nan, infinity = float("nan"), float("inf")
    check_bad(npy.array([1, 2, 3, 4, nan, 6], (2, 3)), "NaN at token 1, channel 1")
    check_bad(npy.array([1, 2, -infinity, 4, 5, 6], (2, 3), "<f2"), "infinity at token 0, channel 2")
    check_bad(npy.array([1, 2, 3, 1e39, 5, 6], (2, 3), "<f8"), "beyond float, at token 1, channel 0")
    many = [1.0] * 1000 * 1000
    many[876543] = nan
    check_bad(npy.array(many, (10, 100, 1000), "<f2"), "NaN at token 876, channel 543")
    check_bad(npy.array([0] * 6, (2, 3)), "all of its values are 0")
    check_bad(npy.array([1, 2], (2, 1)), "1 channel")
    check_bad(None, "No such file", path="absent.npy")
    check_bad(None, "not a regular file", path=".")

    write(good, "good.npy")
    for option in "--weight", "--bias":
        what = option[2:]
        check_bad(npy.array([1, 2, 3], (3,), "<u2"), "use --bfloat16", "good.npy", option, "bad.npy")
        check_bad(npy.array([1, 2], (2,)), f"a {what} of 2 values, for 3 channels", "good.npy", option, "bad.npy")
        check_bad(npy.array([1, nan, 2], (3,)), "NaN", "good.npy", option, "bad.npy")
        check_bad(None, "No such file", "good.npy", option, "absent.npy", path="absent.npy")


# ---- The program -----------------------------------------------------------------------------------------------------

def test_usage():
    path = write(npy.array([1, 2, 3, 4, 5, 7], (2, 3)), "good.npy")
    for arguments in ((), (path, path), (path, "--no-such-option"), (path, "--norm", "batchnorm"),
                      (path, "--eps", "-1"),
                      (path, "--eps", "1e-5x"), (path, "--eps", "nan"), (path, "--fit", "none"), (path, "--eps"),
                      (path, "--outliers-beyond", ""), (path, "--norm", "rmsnorm", "--bias", path),
                      (path, "--plot", "plot.pdf"), (path, "--plot", "plot"), (path, "--plot", "plot.svg.gz")):
        done = run(*arguments)
        tap.check(done.returncode == 2 and done.stdout == "" and "--help" in done.stderr,
                  f"bad usage: {' '.join(arguments)}", f"exit status {done.returncode}\n{done.stdout}{done.stderr}")
    done = run("--help")
    options = "norm eps weight bias bfloat16 fit outliers-beyond json plot help version".split()
    tap.check(done.returncode == 0 and all(f"--{option} " in done.stdout for option in options), "--help")
    tap.check(all(len(line) <= 80 for line in done.stdout.splitlines()), "--help fits into 80 columns", done.stdout)
    version = re.search(r'VERSION_STRING "(.*)"', (source / "include/dynnorm.h").read_text())[1]
    tap.check_equal(run("--version").stdout, f"dynnorm-calibrate {version}\n", "--version")
    if os.path.exists("/dev/full"):
        for argument in path, "--help", "--version":
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([program, argument], stdout=full, stderr=subprocess.PIPE, check=False)
            tap.check_equal(done.returncode, 1, f"{argument}: an output that cannot be written is an error")
    else:
        tap.skip("an output that cannot be written", "this system has no /dev/full")


def r_squared_text(value):
    if value is None:
        return "-"
    return f"{value:.3g}" if value < -1 else f"{value:.5f}" if value < 0 else f"{value:.6f}"


def test_text(generator):
    """The text report shows the same numbers as --json."""
    values = [generator.gauss(0, 1) * (9 if generator.random() < 0.02 else 1) for _ in range(200 * 50)]
    path = write(npy.array(values, (200, 50)))
    for fit in "all", "outliers":
        result, text = calibrate(path, "--fit", fit), run(path, "--fit", fit).stdout
        rows = {" ".join(line.split()) for line in text.splitlines()}
        for curve, symbol in CURVES.items():
            got = result[fit][curve]
            row = (f"{NAMES[curve]} {symbol} = {got[symbol]:.6g} {got['mean_abs_residual']:.6g} "
                   f"{got['max_abs_residual']:.6g} {r_squared_text(got['r_squared'])}")
            tap.check(row in rows, f"{fit}: {row}", text)
        deciles = [result[fit][curve]["deciles"] for curve in CURVES]
        for dyt, dyisru, centered_dyisru in zip(*deciles):
            for border, tables in (dyt["abs_x_up_to"], (dyt, dyisru)), \
                    (centered_dyisru["abs_x_minus_mean_up_to"], (centered_dyisru,)):
                row = f"{border:.4g} {tables[0]['elements']}"
                for decile in tables:
                    row += (f" {decile['mean_abs_residual']:.3g} {decile['max_abs_residual']:.3g} "
                            f"{r_squared_text(decile['r_squared'])}")
                tap.check(row in rows, f"{fit}: {row}", text)


def test_advice(generator):
    """First comes what to use, the nearest first, and then the tables."""
    formulas = {"dyt": "tanh(alpha * x)", "dyisru": "x / sqrt(beta + x^2)", "centered_dyisru": "u / sqrt(beta + u^2)"}
    values = [generator.gauss(0, 1) * (9 if generator.random() < 0.02 else 1) for _ in range(100 * 257)]
    path = write(npy.array(values, (100, 257)))
    for norm, scale, bias in ("layernorm", "16", " + bias"), ("rmsnorm", "16.0312", ""):
        for fit in (), ("--fit", "outliers"):
            fits = calibrate(path, "--norm", norm, *fit)["outliers" if fit else "all"]
            expected = []
            for curve in sorted(CURVES, key=lambda curve: -fits[curve]["r_squared"]):
                symbol = CURVES[curve]
                name = NAMES[curve].replace("c", "C", 1)
                expected.append(f"{name} (R^2 {fits[curve]['r_squared']:.6f}): use {symbol} = "
                                f"{fits[curve]['initial']:.3g} with scale {scale}:")
                expected.append(f"    y = weight * s * {formulas[curve]}{bias}" +
                                (", where u = x - mean(x)" if curve == "centered_dyisru" else ""))
            lines = run(path, "--norm", norm, *fit).stdout.splitlines()
            tap.check_equal(lines[2:8], expected, f"{norm} {fit}: what to use")
            tap.check(lines[0].startswith("In place of ") and
                      lines[9] == f"If your layer has no scale, multiply its initial weight by {scale}.",
                      f"{norm} {fit}: and the scale", "\n".join(lines[:10]))


def test_width(generator):
    """No line is wider than 80 columns, whatever the numbers."""
    def gauss(size, mean=0.0):
        return [generator.gauss(mean, size) for _ in range(40 * 20)]

    decades = [generator.choice((-1, 1)) * 10 ** generator.uniform(-44, 38) for _ in range(40 * 20)]
    for values, name in ((gauss(1), "normal"), (gauss(1, 50), "far off 0"), (gauss(1e-39), "denormal"),
                         (gauss(1e37), "huge"), (decades, "82 decades"), ([5.0] * 800, "constant")):
        path = write(npy.array(values, (40, 20)))
        for norm in "layernorm", "rmsnorm":
            text = run(path, "--norm", norm, "--eps", 0, "--outliers-beyond", 1.5).stdout
            widest = max(text.splitlines() or [" " * 99], key=len)
            tap.check(len(widest) <= 80, f"{name}, {norm}: {len(widest)} columns", widest)
            tap.check(not any(line.endswith(" ") for line in text.splitlines()), f"{name}, {norm}: no spaces at ends")


def test_numbers_as_given():
    """JSON has the numbers that the user gave, not the digits of the nearest float."""
    path = write(npy.array([1, 2, 3, 4, 5, 7], (2, 3)), "good.npy")
    for eps, beyond in ("1e-5", "3"), ("1e-6", "2.7"), ("0.001", "1e-3"), ("0", "0.1"), ("1.2e-38", "16777217"):
        result = calibrate(path, "--eps", eps, "--outliers-beyond", beyond)
        expected = (float(eps), float("16777216" if beyond == "16777217" else beyond))
        tap.check_equal(result and (result["eps"], result["outliers_beyond"]), expected, f"eps {eps}, beyond {beyond}")
    tap.check_equal(calibrate(path)["eps"], 1e-5, "the default eps")
    tap.check_equal(to_float(calibrate(path)["scale"]), to_float(math.sqrt(2)), "the scale reads as its float")


def test_no_best():
    """LayerNorm of a nearly constant x has no outliers, and y of both signs at the same x, so no curve fits."""
    values = [1000.0, 1001.0, 1001.0, 1000.0] * 10
    result = calibrate(write(npy.array(values, (20, 2))), "--eps", 0)
    if result:
        for curve in CURVES:
            got = result["all"][curve]
            tap.check(got["at_edge"] == (got["initial"] is None), f"{curve}: an initial value, or the edge")
            if curve == "centered_dyisru":  # a sign, beta = 0
                tap.check(got["r_squared"] > 0.99, f"{curve}: all is explained")
            else:
                tap.check(got["r_squared"] <= 1e-3, f"{curve}: nothing is explained")
    result = calibrate(write(npy.array([5.0] * 20, (5, 4))), "--eps", 0)
    if result:
        for curve in CURVES:
            got = result["all"][curve]
            tap.check_equal((got["at_edge"], got["initial"], got["r_squared"]), (True, None, None),
                            f"{curve}: constant rows give no best parameter")
        text = run("activations.npy", "--eps", 0).stdout
        tap.check(result["all"]["centered_dyisru"]["constant"], "x - mean(x) is 0 whatever beta is")
        for line in ("DyT (R^2 -): nothing to use, since",
                     "    no alpha is best: the fit gets better all the way to 0.",
                     "    no beta is best: the fit gets better all the way to infinity.",
                     "    the fit does not depend on beta.",
                     "DyT: no alpha is best: the fit gets better all the way to 0."):
            tap.check(f"\n{line}\n" in text, f"and the report says: {line}", text)
        tap.check("If your layer has no scale" not in text, "and no more", text)


def test_no_effect():
    """With a weight of zeros, y is the bias, whatever the parameter."""
    path = write(npy.array([1, 2, 4, 4, 5, 7], (2, 3)), "good.npy")
    weight, bias = write(npy.array([0] * 3, (3,)), "weight.npy"), write(npy.array([1, 2, 3], (3,)), "bias.npy")
    for options in (), ("--bias", bias):
        result = calibrate(path, "--weight", weight, *options)
        text = run(path, "--weight", weight, *options).stdout
        for curve, symbol in CURVES.items():
            got = result and result["all"][curve]
            tap.check(got and got["constant"] and got["initial"] is None, f"weights of 0: no {symbol} is suggested")
            tap.check(f"\n{NAMES[curve]}: the fit does not depend on {symbol}." in text, f"and says so of {symbol}",
                      text)
        tap.check("gets better" not in text, "and no more", text)
    result = calibrate(path)
    tap.check(result and not any(result["all"][curve]["constant"] for curve in CURVES), "weights of 1 are no such case")


def test_poor_fit(generator):
    """Of rows of mean 50 a curve of x explains next to nothing; the centered DyISRU is for LayerNorm of those."""
    advice = "only centered DyISRU removes them"
    for mean, decades, norm, poor, advised in (50, 0, "layernorm", [True, True, False], True), \
            (1.5, 0, "layernorm", [False, False, False], False), (0, 0, "layernorm", [False, False, False], False), \
            (50, 0, "rmsnorm", None, False), (0, 30, "layernorm", [True, True, True], False):
        sizes = [10 ** generator.uniform(-decades / 2, decades / 2) for _ in range(100)]
        values = [size * generator.gauss(mean, 1) for size in sizes for _ in range(32)]
        path = write(npy.array(values, (100, 32)))
        result = calibrate(path, "--norm", norm, "--fit", "all")
        text = run(path, "--norm", norm, "--fit", "all").stdout
        name = f"{norm}, mean {mean}, {decades} decades"
        if result:
            fits = [result["all"][curve] for curve in CURVES]
            tap.check_equal([fit["poor"] for fit in fits], [fit["r_squared"] < 0.1 for fit in fits],
                            f"{name}: what is poor is said")
            for fit, replacement in zip(fits, NAMES.values()):
                warned = re.search(rf"^{replacement} \(R.*: do not use it\.$", text, re.M | re.I) is not None
                tap.check_equal(warned, fit["poor"] and not fit["at_edge"], f"{name}: {replacement}, usable or not")
            if poor is not None:
                tap.check_equal([fit["poor"] for fit in fits], poor, f"{name}: poor")
        tap.check_equal(advice in text, advised, f"{name}: the centered DyISRU")


def test_beyond_float():
    """A beta beyond the range of float is not suggested as an initial value."""
    for values, name in (([2.0 ** 110 * k for k in (1, -2, 3, -1, 2, -3.5)], "large"),
                         ([2.0 ** -140 * k for k in (1, -2, 3, -1, 2, -3.5)], "denormal")):
        result = calibrate(write(npy.array(values, (2, 3))), "--eps", 0)
        if not result:
            continue
        beta = result["all"]["dyisru"]
        tap.check_equal((1.2e-38 < beta["beta"] < 3.4e38, beta["at_edge"], beta["initial"]), (False, False, None),
                        f"{name} values: no initial beta")
        alpha = result["all"]["dyt"]["alpha"]
        tap.check_equal(result["all"]["dyt"]["initial"], float(f"{alpha:.3g}") if 1.2e-38 < alpha < 3.4e38 else None,
                        f"{name} values: alpha = {alpha}")
        text = run("activations.npy", "--eps", 0).stdout
        tap.check(f"\nDyISRU: no initial beta: {beta['beta']:.3g} is outside the range of floats." in text and
                  f"{beta['beta']:.6g}" in text, "and the report says so", text)


def text_of(node):
    return node.data if node.nodeType == node.TEXT_NODE else "".join(map(text_of, node.childNodes))


def test_plotted_points(path):
    """gnuplot gets points of the file with the norm's output, both curves, and the residuals."""
    folder = pathlib.Path("recorder").resolve()
    folder.mkdir()
    (folder / "gnuplot").write_text(f"#!/bin/sh\ncat > '{folder}/script'\n")
    (folder / "gnuplot").chmod(0o755)
    recorded = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
    values = list(struct.iter_unpack("<f", pathlib.Path(path).read_bytes()[-4 * 200 * 50:]))
    rows = [[value for value, in values[i:i + 50]] for i in range(0, len(values), 50)]
    outputs = {f"{x:.9g}": (y, u) for row in rows
               for x, y, u in zip(row, normalized(row, "layernorm", to_float(1e-5)), centered(row))}
    for fit in "all", "outliers":
        result = calibrate(path, "--fit", fit)
        run(path, "--fit", fit, "--plot", "recorded.svg", env=recorded)
        script = (folder / "script").read_text()
        data = re.search(r"\$data << END\n(.*?)END\n", script, re.S)
        points = [line.split() for line in data[1].splitlines()] if data else []
        tap.check(result and len(points) >= min(result[fit]["elements"], 1000),
                  f"{fit}: {len(points)} points are plotted")
        names = {"1": "x", "2": "norm", "3": "dyt", "4": "dyisru", "5": "centered_dyisru"}
        wrong = []
        for point in points if result else []:
            x = float(point[0])
            y, u = outputs.get(point[0], (math.nan, math.nan))
            expected = [y] + [curve_value(curve, result[fit][curve][symbol], result["scale"],
                                          u if curve == "centered_dyisru" else x) for curve, symbol in CURVES.items()]
            errors = [abs(float(got) - wanted) for got, wanted in zip(point[1:], expected)]
            if not all(error <= 16 * U * result["scale"] for error in errors):
                wrong.append((point, expected))
        tap.check(not wrong, f"{fit}: the points are x, the norm's output and the replacements'", f"{wrong[:3]}")
        left = [(names[a], names[b]) for a, b in re.findall(r"\$data using 1:\(\$(\d) - \$(\d)\)", script)]
        tap.check_equal(left, [("dyt", "norm"), ("dyisru", "norm"), ("centered_dyisru", "norm")],
                        f"{fit}: residuals are a curve minus the norm's output")


def test_plot(generator):
    values = [generator.gauss(0, 1) * (9 if generator.random() < 0.02 else 1) for _ in range(200 * 50)]
    path = write(npy.array(values, (200, 50)), "it's a_file.npy")
    # Whatever is wrong with --plot is said before the first pass, which would find the last value bad.
    bad = write(npy.array([*values[:-1], math.nan], (200, 50)), "bad at the end.npy")
    done = run(bad, "--plot", "absent.svg", env=dict(os.environ, PATH=""))
    tap.check(done.returncode == 1 and done.stdout == "" and "gnuplot is not installed" in done.stderr and
              not os.path.exists("absent.svg"), "a missing gnuplot is noticed before the first pass",
              f"exit status {done.returncode}\n{done.stdout}{done.stderr}")
    test_plotted_points(path)
    if not shutil.which("gnuplot"):
        tap.skip("--plot", "gnuplot is not installed")
        return
    for options in (), ("--fit", "all"), ("--fit", "outliers"):
        done = run(path, "--plot", "it's.svg", *options)
        tap.check(done.returncode == 0 and done.stderr == "", f"--plot {options}: runs", done.stderr)
        svg = pathlib.Path("it's.svg").read_text()
        texts = "".join(map(text_of, xml.dom.minidom.parseString(svg).getElementsByTagName("text")))
        for text in "it's a_file.npy", "DyT, α = ", "DyISRU, β = ", "centered DyISRU, β = ", "LayerNorm", "residual":
            tap.check(text in texts, f"--plot {options}: {text}", texts)
        os.remove("it's.svg")
    run(path, "--plot", "plot.png")
    tap.check(pathlib.Path("plot.png").read_bytes().startswith(b"\x89PNG"), "--plot plot.png")
    control = write(npy.array(values, (200, 50)), "x\nsystem('touch pwned')\nsystem(\"touch pwned\")\n\x7f.npy")
    done = run(control, "--plot", "control.svg")
    tap.check(done.returncode == 0 and done.stderr == "" and not os.path.exists("pwned"),
              "a file's name is no command to gnuplot", f"exit status {done.returncode}\n{done.stderr}")
    svg = pathlib.Path("control.svg").read_text()
    texts = "".join(map(text_of, xml.dom.minidom.parseString(svg).getElementsByTagName("text")))
    tap.check("x?system('touch pwned')?system(\"touch pwned\")??.npy" in texts, "and is shown without line ends", texts)
    for name in "line\nend.svg", "delete\x7f.svg", "\x1b[2J.png":
        done = run(path, "--plot", name)
        tap.check(done.returncode == 2 and done.stdout == "" and "control characters" in done.stderr and
                  not os.path.exists(name), f"--plot {name!r} is refused",
                  f"exit status {done.returncode}\n{done.stderr}")
    os.mkdir("a folder.svg")
    for name, reason in ("no/such/folder.svg", "No such file"), ("a folder.svg", "Is a directory"):
        done = run(bad, "--plot", name)
        tap.check(done.returncode == 1 and done.stdout == "" and f"{name}: {reason}" in done.stderr,
                  f"before the first pass: {name}: {reason}", f"exit status {done.returncode}\n{done.stderr}")
    pathlib.Path("earlier.svg").write_text("an earlier plot")
    for name in "earlier.svg", "new.png":
        tap.check_equal(run(bad, "--plot", name).returncode, 2, f"{name} could be written, the file of values is bad")
    tap.check_equal(pathlib.Path("earlier.svg").read_text(), "an earlier plot", "an earlier plot is still there")
    os.symlink("target.svg", "dangling.svg")
    os.mkfifo("pipe.svg")
    for name, reason in ("dangling.svg", "No such file"), ("pipe.svg", "Invalid argument"):
        done = run(bad, "--plot", name)
        tap.check(done.returncode == 1 and done.stdout == "" and f"{name}: {reason}" in done.stderr,
                  f"before the first pass: {name}: {reason}", f"exit status {done.returncode}\n{done.stderr}")
    tap.check(not os.path.exists("new.png") and not os.path.exists("target.svg"), "no empty plot is left")
    tap.check(os.path.islink("dangling.svg"), "the link is still there")


def shown_on_terminal(*arguments):
    """Returns the exit status, and what a terminal gets on stderr."""
    end = b"\0"  # which no program writes
    parent, child = pty.openpty()
    with subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=child) as process:
        # Were the terminal's other side closed at the end, what is still on its way could be lost on a busy system.
        thread = threading.Thread(target=lambda: (process.wait(), os.write(child, end)))
        thread.start()
        shown = b""
        while not shown.endswith(end):
            shown += os.read(parent, 4096)
        thread.join()
    os.close(child)
    os.close(parent)
    return process.returncode, shown.removesuffix(end).decode()


def test_progress(generator):
    try:
        for descriptor in pty.openpty():
            os.close(descriptor)
    except OSError as error:  # as where only a part of the system is mounted
        tap.skip("the progress bar", f"no terminal can be had: {error}")
        return
    values = [generator.gauss(0, 1) for _ in range(1 << 18)]
    path = write(npy.array(values * 4, (1 << 12, 1 << 8)), "good.npy")
    status, shown = shown_on_terminal(path)
    bars = shown.removesuffix("\r\x1b[K").split("\x1b[K")
    tap.check(status == 0 and shown.endswith("\x1b[K\r\x1b[K"), "the bar is gone at the end",
              f"exit status {status}\n{shown[-99:]!r}")
    wrong = [bar for bar in bars if bar and not re.fullmatch(r"\r\[#* *\] +\d+ %(  about \d+ (s|min) left)?", bar)]
    tap.check_equal(wrong, [], "a terminal gets one progress bar")
    percents = [int(percent) for percent in re.findall(r"(\d+) %", shown)]
    tap.check(percents == sorted(percents) and percents[:1] == [0] and percents[-1:] >= [95],
              "which goes from 0 to the end, and never back", f"{percents}")
    steps = [after - before for before, after in zip(percents, percents[1:])]
    tap.check(max(steps, default=100) <= 25, "in no great steps", f"{percents}")
    left = shown.count(" left")
    tap.check(left >= len(percents) - 2, f"{left} of {len(percents)} times it tells the time left", repr(shown[:400]))
    tap.check_equal(run(path).stderr, "", "a file gets none")

    write(npy.array([*values * 4][:-1] + [math.nan], (1 << 12, 1 << 8)), "bad.npy")
    status, shown = shown_on_terminal("bad.npy")
    tap.check(status == 2 and re.search(r"left\x1b\[K\r\x1b\[Kdynnorm-calibrate: bad.npy: NaN", shown),
              "an error comes when the bar is gone", f"exit status {status}\n{shown[-200:]!r}")


print(f"# seed {SEED}")
with tempfile.TemporaryDirectory() as temporary:
    program = os.path.abspath(program)
    source = source.resolve()
    os.chdir(temporary)
    test_sample()
    test_usage()
    for number, test in enumerate((test_rmsnorm_is_dyisru, test_layernorm_is_dyisru, test_outliers_are_dyisru,
                                   test_scales, test_against_python, test_forms, test_conversions, test_large_file,
                                   test_text, test_plot, test_poor_fit, test_tenths_of_all_sizes,
                                   test_layernorm_is_centered_dyisru, test_advice, test_width, test_progress,
                                   test_bfloat16)):
        test(random.Random(SEED + number))
    test_bad_files()
    test_no_best()
    test_beyond_float()
    test_no_effect()
    test_numbers_as_given()
    os.chdir("/")
tap.done()
