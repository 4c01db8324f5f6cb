#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests bench/model: how it finds loops and the usual way through them, how it reads llvm-mca's report, and, if the
tools are here, whether it models every kernel."""
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "test/harness"))
import tap  # noqa: E402 (found in the harness of the tests)

loader = importlib.machinery.SourceFileLoader("model", str(HERE / "model"))
model = importlib.util.module_from_spec(importlib.util.spec_from_loader("model", loader))
loader.exec_module(model)


def marked_loops(assembly):
    """(parts, elements, instructions as words) of the loops of each kernel in the assembly."""
    return {kernel: sorted((sorted(loop.parts), loop.elements, " ".join(line.split()[0] for line in loop.instructions))
                           for loop in loops)
            for kernel, loops in model.kernels_of(assembly).items()}


def function(name, body):
    return f"\t.text\n{name}:\n{body}\t.size\t{name}, .-{name}\n"


# Two passes of four elements each, unrolled, in a loop that jumps to a rare block and back; a loop around it.
UNROLLED = """\
\tmov\tx1, 0
.L1:
\tldr\tx2, [x3]
.L2:
\tfmul\tv1.4s, v1.4s, v6.4s
\tcbnz\tw0, .L6
.L5:
\tstr\tq1, [x2], 16
#APP
// 7 "forward.h" 1
\t# MODEL PASS y 0 4
// 0 "" 2
#NO_APP
\tstr\tq2, [x2], 16
\t# MODEL PASS y 0 4
\tcmp\tx4, x2
\tbls\t.L2
\tcmp\tx1, x5
\tbne\t.L1
\tret
.L6:
\tbl\trare
\tb\t.L5
"""

# A loop over blocks that computes two parts of 8 elements. Around one of them it goes a way that is said to be usual,
# though it is longer, and through a loop of two passes of another part.
NESTED = """\
.L1:
\tcbz\tx1, .L2
\tfadd\tv1.4s, v1.4s, v6.4s
\t# MODEL USUAL 0 0
\tfsub\tv1.4s, v1.4s, v6.4s
.L2:
\t# MODEL PASS sums 3 8
.L3:
\tfmul\tv1.4s, v1.4s, v6.4s
\t# MODEL PASS y 0 4
\tcbnz\tx7, .L3
\tstr\tq2, [x2], 16
\t# MODEL PASS sums 20 8
\tcbnz\tx2, .L1
\tret
"""

# The same part three times: for four elements, for eight with an addition, and, unusually, for sixteen.
COPIES = """\
\tcbz\tx0, .L3
\tcbz\tx1, .L5
.L1:
\tfmul\tv1.4s, v1.4s, v6.4s
\t# MODEL PASS dx 0 4
\tcbnz\tx2, .L1
.L2:
\tfadd\tv1.4s, v1.4s, v6.4s
\t# MODEL PASS dx 0 8
\tcbnz\tx2, .L2
\tret
.L3:
\t# MODEL UNUSUAL 0 0
.L4:
\tfsub\tv1.4s, v1.4s, v6.4s
\t# MODEL PASS dx 0 16
\tcbnz\tx2, .L4
\tret
.L5:
\tbl\tunusual_helper
\tb\tdynnorm_neon_helper
"""

# A function that is unusual as a whole.
UNUSUAL = """\
\tmov\tx1, 0
\t# MODEL UNUSUAL 0 0
.L1:
\t# MODEL PASS dx 0 32
\tcbnz\tx2, .L1
\tret
"""

# AT&T syntax. A loop with a call that no pass can avoid, and a loop in a part that the compiler has put aside.
X86 = """\
.L1:
\tvmulps\t%zmm0, %zmm1, %zmm2
\tcall\t*%rax
\t# MODEL PASS y 0 16
\tjne\t.L1
\tjmp\t.L9
.L2:
\tret
\t.section\t.text.unlikely
dynnorm_avx512_dyt_forward_portable.cold:
.L9:
\tvaddps\t%zmm0, %zmm1, %zmm2
\t# MODEL PASS du 0 32
\tjne\t.L9
\tjmp\t.L2
\t.text
"""

# A function that is said to be rare.
RARE = """\
\t.section\t.text.unlikely
rare:
.L1:
\t# MODEL PASS dx 0 32
\tcbnz\tx2, .L1
\tret
\t.size\trare, .-rare
"""


def test_assembly():
    found = marked_loops(RARE + function("rmsnorm_forward_portable", UNROLLED))
    tap.check_equal(found, {"rmsnorm_forward_portable": [(["y 0"], 8, "fmul cbnz str str cmp bls")]},
                    "an unrolled loop in a loop, with a rare block behind it")
    found = marked_loops(function("dynnorm_neon_layernorm_forward_portable", NESTED))
    tap.check_equal(found, {"layernorm_forward_portable": [(["sums 20", "sums 3"], 8, "cbz fadd fsub str cbnz"),
                                                           (["y 0"], 4, "fmul cbnz")]},
                    "two parts in one loop, another in a loop inside, and the usual way")
    helpers = (function("dynnorm_neon_helper", NESTED.replace("y 0 4", "du 0 4")) +
               function("unusual_helper", UNUSUAL))
    found = marked_loops(function("centered_dyisru_backward_native", COPIES) + helpers)
    tap.check_equal(found, {"centered_dyisru_backward_native": [(["du 0"], 4, "fmul cbnz"), (["dx 0"], 8, "fadd cbnz"),
                                                                (["sums 20", "sums 3"], 8, "cbz fadd fsub str cbnz")]},
                    "the largest of the usual copies, and the loops of a function that is called")
    x86 = function("dynnorm_avx512_dyt_forward_portable", X86)
    found = marked_loops(x86)
    tap.check_equal(found, {"dyt_forward_portable": [(["du 0"], 32, "vaddps jne"),
                                                     (["y 0"], 16, "vmulps call jne")]},
                    "a loop with a call, and a loop put aside")
    calls = {str(sorted(loop.parts)): loop.calls for loop in model.kernels_of(x86)["dyt_forward_portable"]}
    tap.check_equal(calls, {"['du 0']": False, "['y 0']": True}, "which of them calls is known")
    for name, text in (("no loop of dyt_forward_portable has a mark", UNROLLED.replace("PASS", "USUAL")),
                       ("different numbers of elements", NESTED.replace("sums 20 8", "sums 20 4"))):
        try:
            tap.check(False, f"refused: {name}", str(marked_loops(function("dyt_forward_portable", text))))
        except model.Failure as failure:
            tap.check(name in str(failure), f"refused: {name}", str(failure))


def region(count, cycles, uops, usage):
    sums = [{"InstructionIndex": count, "ResourceIndex": index, "ResourceUsage": use}
            for index, use in enumerate(usage)]
    of_instruction = [{"InstructionIndex": 0, "ResourceIndex": 1, "ResourceUsage": 99}]
    return {"Instructions": ["nop"] * count, "ResourcePressureView": {"ResourcePressureInfo": of_instruction + sums},
            "SummaryView": {"DispatchWidth": 8, "Iterations": 100, "TotalCycles": cycles, "TotaluOps": uops}}


# A report as LLVM 19 writes it, without what bench/model does not read. The loops are limited by a unit, by dispatch,
# by neither, and by a unit again.
REPORT = {"TargetInfo": {"CPUName": "neoverse-n1", "Resources": ["N1UnitB", "N1UnitL.\x00", "N1UnitL.\x01",
                                                                 "N1UnitV0"]},
          "CodeRegions": [region(6, 717, 1100, [1, 1.07, 1.93, 7.03]), region(4, 208, 1600, [1, 0.5, 0.5, 1]),
                          region(4, 800, 800, [1, 0.5, 4.5, 1]), region(6, 717, 1100, [1, 1.07, 1.93, 7.03])]}


def test_figures():
    loops = [model.Loop({"y 0"}, elements, [], calls) for elements, calls in ((4, 0), (4, 0), (8, 0), (8, 1))]
    figures = model.figures_of(REPORT, loops)
    tap.check_equal(figures, [model.Figure(1.7925, "N1UnitV0"), model.Figure(0.52, "dispatch"),
                              model.Figure(1.0, "waits"), model.Figure(0.89625, "calls")],
                    "cycles per element, and what limits them")
    tap.check_equal(model.sum_of([figures[2], figures[0]]), model.Figure(2.7925, "N1UnitV0"),
                    "a kernel is the sum of its loops")
    tap.check_equal(model.sum_of([figures[0], figures[3]]).limit, "calls", "and of no use where one of them calls")
    text = model.table({"x": {"centered_dyisru_forward_native": model.Figure(3.0, "waits")}})
    tap.check("| centered DyISRU forward, native | 3.000 waits |" in text, "the table", text)


def test_every_kernel():
    names = [f"every kernel is {what}" for what in ("marked", "modelled")]
    try:
        model.need("meson", "meson")
        folder = model.set_up("aarch64")
    except model.Missing as missing:
        for name in names:
            tap.skip(name, str(missing))
        return
    kernels, _ = model.compile_kernels(folder, "neon")
    for kernel, loops in kernels.items():
        parts = {part.split()[0] for loop in loops for part in loop.parts}
        operation, direction, _ = model.KERNELS[kernel]
        expected = {"y" if direction == "forward" else "dx"}
        if model.operations.OPERATIONS[operation].statistics:
            expected.add("sums")
        tap.check(parts >= expected, f"{kernel} has the parts {', '.join(sorted(parts))}", str(loops))
    try:
        llvm_mca, _ = model.newest_llvm_mca()
    except model.Missing as missing:
        tap.skip(names[1], str(missing))
        return
    for cpu in model.CPUS["neon"]:
        figures = model.model(llvm_mca, "aarch64", cpu, kernels)
        tap.check_equal(list(figures), list(kernels), f"{names[1]} on {cpu}")
        tap.check(all(0.1 < figure.cycles < 100 for figure in figures.values()), f"their figures on {cpu} are likely",
                  str(figures))


def test_missing_tools():
    done = subprocess.run([sys.executable, str(HERE / "model")], env={"PATH": "/nowhere"}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    tap.check(done.returncode == 1 and "install the package" in done.stdout, "a missing tool is named", done.stdout)


test_assembly()
test_figures()
test_missing_tools()
with tempfile.TemporaryDirectory() as temporary:
    model.FOLDER = pathlib.Path(temporary)
    test_every_kernel()
tap.done()
