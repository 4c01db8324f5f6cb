#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Times PyTorch at cases of dynnorm-bench: in eager mode, in one thread, in a process of its own.

usage: peer_pytorch.py LIBDYNNORM MIN-TIME TYPE=TOLERANCE,... RESULTS < NAMES

Reads names of cases, one on each line. Measures each for at least MIN-TIME seconds, and then prints its name. Writes a
list of benchmarks in Google Benchmark's format to RESULTS. Before a case is measured, its results are compared with
those of the library LIBDYNNORM, which they must match within the TOLERANCE for the type of elements. In 16 bits these
are, by definition, those of floats, rounded.

LayerNorm is PyTorch's own, and so is RMSNorm if PyTorch has it. The others are composed of PyTorch's operations, as a
user would write them. autograd computes the backward passes. eps, alpha, beta and scale are those of describe_call in
calls.c.
"""
import ctypes
import json
import math
import sys
import time

import torch
import torch.nn.functional as functions

import operations
import results

EPS, ALPHA, SCALE = 1e-5, 0.5, 1.0

# PyTorch allocates its results in each call. Until the heap is as large as the call needs, which takes some calls, and
# now and then afterwards, most of a call's time goes into new pages: up to seven times as long as the call itself. So
# some calls come before the measurement, and the fastest of several measurements counts.
CALLS_BEFORE = 3
MEASUREMENTS = 3


def layernorm(x, weight, bias, _):
    return functions.layer_norm(x, weight.shape, weight, bias, EPS)


def rmsnorm(x, weight, _, __):
    if hasattr(functions, "rms_norm"):
        return functions.rms_norm(x, weight.shape, weight, EPS)
    return weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS))


def dyt(x, weight, bias, alpha):
    return weight * torch.tanh(alpha * x) + bias


def dyisru(x, weight, bias, beta):
    return weight * (math.sqrt(x.shape[1]) * x * torch.rsqrt(beta + x * x)) + bias


FORWARD = {"layernorm": layernorm, "rmsnorm": rmsnorm, "dyt": dyt, "dyisru": dyisru}


TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Inputs:
    def __init__(self, operation, tokens, channels, dtype):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(tokens, channels, generator=generator).to(dtype)
        self.dy = torch.randn(tokens, channels, generator=generator).to(dtype)
        self.weight = (1 + 0.1 * torch.randn(channels, generator=generator)).to(dtype)
        self.bias = (0.1 * torch.randn(channels, generator=generator)).to(dtype)
        facts = operations.OPERATIONS[operation]
        self.parameter = torch.tensor({"alpha": ALPHA, "beta": float(channels), "none": 0}[facts.parameter])
        self.with_gradient = [self.x, self.weight]
        if facts.has_bias:
            self.with_gradient.append(self.bias)
        if facts.parameter != "none":
            self.with_gradient.append(self.parameter)


def work_of(case, inputs):
    """A function that computes the pass and returns its outputs."""
    forward = FORWARD[case.operation]
    arguments = inputs.x, inputs.weight, inputs.bias, inputs.parameter
    if case.direction == "forward":
        def run():
            with torch.no_grad():
                return [forward(*arguments)]
        return run
    for tensor in inputs.with_gradient:
        tensor.requires_grad_()
    y = forward(*arguments)
    return lambda: torch.autograd.grad(y, inputs.with_gradient, inputs.dy, retain_graph=True)


def library_outputs(library, case, inputs):
    """The same outputs, computed by the library in floats."""
    kept = []  # as long as their addresses are needed

    def address(tensor):
        kept.append(tensor.float())
        return ctypes.c_void_p(kept[-1].data_ptr())

    shape = [ctypes.c_size_t(case.tokens), ctypes.c_size_t(case.channels)]
    x, weight, bias, dy = map(address, (inputs.x, inputs.weight, inputs.bias, inputs.dy))
    facts = operations.OPERATIONS[case.operation]
    no_statistics = [None] * facts.statistics
    numbers = [ctypes.c_float(EPS)]
    if facts.parameter != "none":
        scale = math.sqrt(case.channels) if facts.parameter == "beta" else SCALE
        numbers = [ctypes.c_float(inputs.parameter.item()), ctypes.c_float(scale)]
    if case.direction == "forward":
        outputs = [torch.empty_like(inputs.x, dtype=torch.float32)]
        arguments = [*no_statistics, x, weight, *([bias] if facts.has_bias else []), *numbers]
    else:
        outputs = [torch.empty_like(tensor, dtype=torch.float32) for tensor in inputs.with_gradient]
        arguments = [dy, x, weight, *no_statistics, *numbers]
    function = getattr(library, f"dynnorm_{case.operation}_{case.direction}_f32")
    status = function(*map(address, outputs), *arguments, *shape)
    if status:
        raise RuntimeError(f"the library gives status {status}")
    return outputs


def deviation(got, expected):
    """The largest difference, as a fraction of the largest magnitude in its tensor, like peer_deviation in peers.c."""
    largest = 0.0
    for one, other in zip(got, expected):
        difference = (one.detach().float() - other).abs().max().item()
        if not math.isfinite(difference):
            return math.inf
        largest = max(largest, difference / other.abs().max().item() if difference > 0 else 0.0)
    return largest


def timed(work, iterations):
    """The CPU time and the wall-clock time of so many calls, in seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(iterations):
        work()
    return time.process_time() - cpu, time.perf_counter() - wall


def measure(name, library, min_time, tolerances):
    case = results.parse(name)
    entry = {"name": name, "run_name": name, "run_type": "iteration", "repetitions": 1, "repetition_index": 0,
             "threads": 1, "time_unit": "ns"}
    inputs = Inputs(case.operation, case.tokens, case.channels, TYPES[case.type])
    try:
        work = work_of(case, inputs)
        got = work()
    except RuntimeError as error:
        said = (str(error).splitlines() or ["it says nothing"])[0]
        return {**entry, "error_occurred": True, "error_message": f"unable: {said}"}
    off = deviation(got, library_outputs(library, case, inputs))
    if off > tolerances[case.type]:
        return {**entry, "error_occurred": True,
                "error_message": f"wrong: the results differ from the library's by {off:.2g} of the largest"}
    iterations = 1
    timed(work, CALLS_BEFORE)
    cpu, wall = timed(work, iterations)
    while cpu < min_time:
        iterations = math.ceil(iterations * min(10, max(1.4 * min_time / cpu if cpu > 0.1 * min_time else 10, 1.1)))
        cpu, wall = timed(work, iterations)
    cpu, wall = min([(cpu, wall)] + [timed(work, iterations) for _ in range(MEASUREMENTS - 1)])
    return {**entry, "iterations": iterations, "real_time": wall / iterations * 1e9, "cpu_time": cpu / iterations * 1e9,
            "bytes_per_second": results.bytes_moved(case) * iterations / cpu,
            "tokens_per_second": case.tokens * iterations / cpu, "deviation": off}


def main(library, min_time, tolerances, path):
    torch.set_num_threads(1)
    library = ctypes.CDLL(library)
    tolerances = {type_: float(number) for type_, _, number in (one.partition("=") for one in tolerances.split(","))}
    entries = []
    for line in sys.stdin:
        entries.append(measure(line.strip(), library, float(min_time), tolerances))
        print(line.strip(), flush=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(entries, file)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
