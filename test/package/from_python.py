#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Calls the shared library from Python by ctypes: every operation, forward and backward, on a small example; the
centered DyISRU by way of the descriptor. Compares with the formulas of dynnorm.h in Python's doubles, within the bounds
of test/harness/bounds.h.

usage: from_python.py LIBRARY SOURCE-FOLDER
"""
import contextlib
import ctypes
import io
import math
import pathlib
import random
import re
import sys

import tap
from descriptor_table import DescriptorTable

if not re.search(r"\.(so|dylib|dll)\b", sys.argv[1]):
    tap.skip("ctypes", "no shared library is built")
    tap.done()
library = ctypes.CDLL(sys.argv[1])
BOUNDS_TABLE = (pathlib.Path(sys.argv[2]) / "test/harness/bounds.h").read_text(encoding="utf-8")
HEADER = re.sub(r"/\*.*?\*/", "", (pathlib.Path(sys.argv[2]) / "include/dynnorm.h").read_text(encoding="utf-8"),
                flags=re.DOTALL)
BOUND = {(operation, output): float(factor) for operation, output, factor in
         re.findall(r"\{DYNNORM_(\w+), BUFFER_(\w+), ([0-9.]+),", BOUNDS_TABLE)}
U = 2.0 ** -24

TOKENS, CHANNELS = 3, 37
SEED = 20250321
EPS, ALPHA, BETA, SCALE = 1e-5, 0.75, 1.5, 2.0  # ALPHA, BETA and SCALE are floats exactly


def floats(values):
    values = list(values)
    return (ctypes.c_float * len(values))(*values)


def zeros(count):
    return floats([0.0] * count)


def rows(values):
    values = list(values)
    return [values[i:i + CHANNELS] for i in range(0, len(values), CHANNELS)]


def columns_sum(matrix):
    return [math.fsum(column) for column in zip(*matrix)]


def call(name, *arguments):
    """Calls a function that returns a status, with Python's float as float and int as size_t."""
    function = getattr(library, name)
    function.restype = ctypes.c_int
    convert = {float: ctypes.c_float, int: ctypes.c_size_t}
    status = function(*(convert.get(type(argument), lambda same: same)(argument) for argument in arguments))
    tap.check_equal(status, 0, f"{name} returns DYNNORM_OK")


def check(operation, output, got, expected, reference):
    """Compares lists, or lists of rows, within the bound for this output."""
    def flat(values):
        return [value for part in values for value in (part if isinstance(part, list) else [part])]
    factor = BOUND[operation.upper().replace(" ", "_"), output.upper()]
    for i, (value, right, size) in enumerate(zip(flat(got), flat(expected), flat(reference))):
        if not abs(value - right) <= factor * U * size:
            tap.check(False, f"{operation} {output}", f"seed {SEED}, index {i}: got {value!r}, expected {right!r}, "
                      f"bound {factor * U * size!r}")
            return
    tap.check(len(flat(got)) == len(flat(expected)) == len(flat(reference)), f"{operation} {output}")


generator = random.Random(SEED)
X, DY = (floats(generator.gauss(0.5, 2) for _ in range(TOKENS * CHANNELS)) for _ in range(2))
WEIGHT, BIAS = (floats(generator.gauss(1, 0.5) for _ in range(CHANNELS)) for _ in range(2))
x, dy, weight, bias = rows(X), rows(DY), list(WEIGHT), list(BIAS)
h = [[w * g for w, g in zip(weight, row)] for row in dy]
eps = ctypes.c_float(EPS).value


def each(function, *tensors):
    """Applies function to each element of tensors and vectors of channels."""
    return [[function(*(tensor[t][c] if isinstance(tensor[t], list) else tensor[c] for tensor in tensors))
             for c in range(CHANNELS)] for t in range(TOKENS)]


def test_norm(operation):
    """LayerNorm or RMSNorm."""
    centered = operation == "LayerNorm"
    name = "dynnorm_" + operation.lower()
    means = [math.fsum(row) / CHANNELS if centered else 0.0 for row in x]
    variances = [math.fsum((a - m) ** 2 for a in row) / CHANNELS for row, m in zip(x, means)]
    rstds = [1 / math.sqrt(v + eps) for v in variances]
    n = [[(a - m) * r for a in row] for row, m, r in zip(x, means, rstds)]
    n_size = each(lambda a: max(abs(a), 1.0) if centered else abs(a), n)

    y, mean, rstd = zeros(TOKENS * CHANNELS), zeros(TOKENS), zeros(TOKENS)
    if centered:
        call(name + "_forward_f32", y, mean, rstd, X, WEIGHT, BIAS, EPS, TOKENS, CHANNELS)
        check(operation, "mean", list(mean), means, [max(abs(m), math.sqrt(v)) for m, v in zip(means, variances)])
    else:
        call(name + "_forward_f32", y, rstd, X, WEIGHT, EPS, TOKENS, CHANNELS)
    check(operation, "rstd", list(rstd), rstds, rstds)
    b = bias if centered else [0.0] * CHANNELS
    check(operation, "y", rows(y), each(lambda a, w, c: w * a + c, n, weight, b),
          each(lambda a, w, c: abs(w) * a + abs(c), n_size, weight, b))

    dx, dweight, dbias = zeros(TOKENS * CHANNELS), zeros(CHANNELS), zeros(CHANNELS)
    if centered:
        call(name + "_backward_f32", dx, dweight, dbias, DY, X, WEIGHT, None, None, EPS, TOKENS, CHANNELS)
        check(operation, "dbias", list(dbias), columns_sum(dy), columns_sum(each(abs, dy)))
    else:
        call(name + "_backward_f32", dx, dweight, DY, X, WEIGHT, None, EPS, TOKENS, CHANNELS)
    check(operation, "dweight", list(dweight), columns_sum(each(lambda g, a: g * a, dy, n)),
          columns_sum(each(lambda g, size: abs(g) * size, dy, n_size)))
    expected, reference = [], []
    for h_row, n_row, r in zip(h, n, rstds):
        mean_h = math.fsum(h_row) / CHANNELS if centered else 0.0
        mean_hn = math.fsum(a * c for a, c in zip(h_row, n_row)) / CHANNELS
        expected.append([r * (a - mean_h - c * mean_hn) for a, c in zip(h_row, n_row)])
        largest = max(max(abs(r * a), abs(r * c * mean_hn)) for a, c in zip(h_row, n_row))
        reference.append([largest] * CHANNELS)
    check(operation, "dx", rows(dx), expected, reference)


def test_elementwise(operation, parameter_name, parameter, function, derivative, by_parameter, by_parameter_factor,
                     slope):
    """DyT or DyISRU: y = weight scale function(x) + bias. by_parameter is the function's derivative by alpha or beta,
    slope the largest derivative by x."""
    name = "dynnorm_" + operation.lower()
    f = each(function, x)
    y = zeros(TOKENS * CHANNELS)
    call(name + "_forward_f32", y, X, WEIGHT, BIAS, parameter, SCALE, TOKENS, CHANNELS)
    check(operation, "y", rows(y), each(lambda a, w, b: w * SCALE * a + b, f, weight, bias),
          each(lambda a, w, b: abs(w * SCALE * a) + abs(b), f, weight, bias))

    dx, dweight, dbias, dparameter = zeros(TOKENS * CHANNELS), zeros(CHANNELS), zeros(CHANNELS), zeros(1)
    call(name + "_backward_f32", dx, dweight, dbias, dparameter, DY, X, WEIGHT, parameter, SCALE, TOKENS, CHANNELS)
    check(operation, "dx", rows(dx), each(lambda g, a: SCALE * g * derivative(a), h, x),
          [[max(abs(SCALE * slope * g) for g in row)] * CHANNELS for row in h])
    terms = each(lambda g, a: g * SCALE * a, dy, f)
    check(operation, "dweight", list(dweight), columns_sum(terms), columns_sum(each(abs, terms)))
    check(operation, "dbias", list(dbias), columns_sum(dy), columns_sum(each(abs, dy)))
    terms = each(lambda g, a: SCALE * g * by_parameter(a), h, x)
    check(operation, "d" + parameter_name, list(dparameter), [math.fsum(sum(terms, []))],
          [math.fsum(sum(each(lambda term, a: by_parameter_factor(a) * abs(term), terms, x), []))])


# ---- The descriptor, as docs/descriptor.md lays it out ---------------------------------------------------------------

C_TYPES = {"size_t": ctypes.c_size_t, "float": ctypes.c_float, "int": ctypes.c_int, "dynnorm_operation": ctypes.c_int,
           "dynnorm_mode": ctypes.c_int, "dynnorm_type": ctypes.c_int, "size_t[3]": ctypes.c_size_t * 3}
TABLE = DescriptorTable(sys.argv[2])


class Descriptor:
    """Bytes, whose fields are read and written at the table's offsets."""

    def __init__(self, size):
        self.bytes = ctypes.create_string_buffer(b"\xa5" * size, size)
        self.status = library.dynnorm_descriptor_init(self.bytes, ctypes.c_size_t(size))
        self.places = {}
        for field in TABLE.fields:
            c_type = ctypes.c_void_p if "*" in field.type else C_TYPES[field.type]
            if field.offset + ctypes.sizeof(c_type) <= size:
                self.places[field.name] = c_type.from_buffer(self.bytes, field.offset)

    def __getitem__(self, name):
        place = self.places[name]
        return list(place) if isinstance(place, ctypes.Array) else place.value

    def __setitem__(self, name, value):
        if isinstance(self.places[name], ctypes.Array):
            self.places[name][:] = value
        else:
            self.places[name].value = value


def test_defaults():
    for version, size in TABLE.sizes.items():
        descriptor = Descriptor(size)
        tap.check_equal(descriptor.status, 0, f"dynnorm_descriptor_init knows the size of {version}")
        for field in TABLE.fields:
            if field.name in descriptor.places:
                expected = {"the size": size, "NULL": None, "0, 0, 0": [0, 0, 0]}.get(field.default)
                expected = float(field.default) if field.default in ("0", "1") else expected
                tap.check_equal(descriptor[field.name], expected, f"{version}: {field.name} is {field.default} by default")
    for size in (0, 8, *(size + change for size in TABLE.sizes.values() for change in (-8, 8))):
        descriptor = Descriptor(size)
        tap.check(descriptor.status != 0 and set(descriptor.bytes.raw) <= {0xa5},
                  f"dynnorm_descriptor_init does not know the size {size}, and writes nothing")


def test_example():
    """The program of docs/descriptor.md prints what its last line says."""
    text = (pathlib.Path(sys.argv[2]) / "docs/descriptor.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)[1]
    expected = program.rstrip().rpartition("\n# ")[2]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(program.replace("libdynnorm.so.0.2", sys.argv[1].replace("\\", "/")), {})
    tap.check_equal(printed.getvalue().strip(), expected, "the example of docs/descriptor.md")


def test_centered_dyisru(size):
    """With the descriptor of that size."""
    descriptor = Descriptor(size)
    operations = re.search(r"typedef enum \{([^}]*)\} dynnorm_operation;", HEADER)[1]
    descriptor["operation"] = re.findall(r"DYNNORM_\w+", operations).index("DYNNORM_CENTERED_DYISRU")
    descriptor["tokens"], descriptor["channels"] = TOKENS, CHANNELS
    descriptor["beta"], descriptor["scale"] = BETA, SCALE
    y, dx, dweight, dbias, dbeta = (zeros(n) for n in (TOKENS * CHANNELS, TOKENS * CHANNELS, CHANNELS, CHANNELS, 1))
    for field, array in (("x", X), ("y", y), ("dy", DY), ("dx", dx), ("weight", WEIGHT), ("bias", BIAS),
                         ("dweight", dweight), ("dbias", dbias)):
        descriptor[field + ".data"] = ctypes.addressof(array)
    descriptor["dbeta"] = ctypes.addressof(dbeta)
    if "axes" in descriptor.places:
        # The same rows, said in another way.
        descriptor["axes"], descriptor["axis_rows"] = 2, [1, TOKENS, 7]
        strides = (ctypes.c_size_t * 2)(999, CHANNELS)
        descriptor["x_axis_strides"] = ctypes.addressof(strides)
    call("dynnorm_forward", descriptor.bytes)
    call("dynnorm_backward", descriptor.bytes)

    # Checks only the part of the bounds that does not depend on how far x is from its mean, which is stricter than
    # promised.
    operation = "centered DyISRU"
    u = [[a - math.fsum(row) / CHANNELS for a in row] for row in x]
    q = each(lambda a: a / math.sqrt(BETA + a * a), u)
    check(operation, "y", rows(y), each(lambda a, w, b: w * SCALE * a + b, q, weight, bias),
          each(lambda a, w, b: abs(w * SCALE * a) + abs(b), q, weight, bias))
    du = each(lambda g, a: SCALE * g * BETA * (BETA + a * a) ** -1.5, h, u)
    check(operation, "dx", rows(dx), [[a - math.fsum(row) / CHANNELS for a in row] for row in du],
          [[max(abs(SCALE * g) for g in row) / math.sqrt(BETA)] * CHANNELS for row in h])
    terms = each(lambda g, a: g * SCALE * a, dy, q)
    check(operation, "dweight", list(dweight), columns_sum(terms), columns_sum(each(abs, terms)))
    check(operation, "dbias", list(dbias), columns_sum(dy), columns_sum(each(abs, dy)))
    terms = sum(each(lambda g, a: -SCALE * g * a * (BETA + a * a) ** -1.5 / 2, h, u), [])
    check(operation, "dbeta", list(dbeta), [math.fsum(terms)], [math.fsum(map(abs, terms))])


for function in ("dynnorm_version", "dynnorm_isa", "dynnorm_status_string"):
    getattr(library, function).restype = ctypes.c_char_p
for function in ("dynnorm_scale_rmsnorm", "dynnorm_scale_layernorm"):
    getattr(library, function).restype = ctypes.c_float
print(f"# dynnorm {library.dynnorm_version().decode()}, {library.dynnorm_isa().decode()}, seed {SEED}")

test_norm("LayerNorm")
test_norm("RMSNorm")
test_elementwise("DyT", "alpha", ALPHA,
                 function=lambda a: math.tanh(ALPHA * a),
                 derivative=lambda a: ALPHA / math.cosh(ALPHA * a) ** 2,
                 by_parameter=lambda a: a / math.cosh(ALPHA * a) ** 2,
                 by_parameter_factor=lambda a: 6 + 3 * abs(ALPHA * a),
                 slope=ALPHA)
test_elementwise("DyISRU", "beta", BETA,
                 function=lambda a: a / math.sqrt(BETA + a * a),
                 derivative=lambda a: BETA * (BETA + a * a) ** -1.5,
                 by_parameter=lambda a: -a * (BETA + a * a) ** -1.5 / 2,
                 by_parameter_factor=lambda a: 1.0,
                 slope=1 / math.sqrt(BETA))
if ctypes.sizeof(ctypes.c_void_p) == 8:
    test_defaults()
    test_example()
    for known_size in TABLE.sizes.values():
        test_centered_dyisru(known_size)
else:
    tap.skip("the descriptor", "docs/descriptor.md has its offsets where pointers have 64 bits")
tap.check_equal(library.dynnorm_scale_rmsnorm(ctypes.c_size_t(4096)), 64.0, "dynnorm_scale_rmsnorm")
tap.check_equal(library.dynnorm_scale_layernorm(ctypes.c_size_t(4097)), 64.0, "dynnorm_scale_layernorm")
tap.check(len(library.dynnorm_status_string(ctypes.c_int(1))) > 0, "dynnorm_status_string")
tap.check_equal(library.dynnorm_set_isa(b"scalar"), 0, "dynnorm_set_isa")
tap.check_equal(library.dynnorm_isa(), b"scalar", "dynnorm_isa names it")
tap.done()
