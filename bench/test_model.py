#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Whether bench/model finds the loops, reads llvm-mca, sums aright, and, where its tools are, models every kernel."""
import importlib.machinery
import importlib.util
import pathlib
import re
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

# A loop in a loop, and one with a rare block behind it.
ASSEMBLY = """\
rmsnorm_forward_portable__sums:
\t# MODEL 256 4
\tmov\tx1, 0
.L1:
\tmov\tx2, x3
.L2:
\tldr\tq1, [x2], 16
\tfadd\tv0.4s, v0.4s, v1.4s
\tcmp\tx4, x2
\tbne\t.L2
\tcmp\tx1, x5
\tbeq\t.L3
\tb\t.L1
.L3:
\tret
\t.size\trmsnorm_forward_portable__sums, .-rmsnorm_forward_portable__sums
rmsnorm_forward_portable__y:
\t# MODEL 16 1
\t.p2align 3
.L4:
\tldr\tq1, [x3], 16
\tfmul\tv1.4s, v1.4s, v6.4s
\tcbnz\tw0, .L6
.L5:
\tstr\tq1, [x2], 16
\tcmp\tx4, x2
\tbls\t.L4
\tret
.L6:
\tbl\trare
\tb\t.L5
\t.size\trmsnorm_forward_portable__y, .-rmsnorm_forward_portable__y
"""

SUMS = ["\tldr\tq1, [x2], 16", "\tfadd\tv0.4s, v0.4s, v1.4s", "\tcmp\tx4, x2", "\tbne\t.L2"]
Y = ["\tldr\tq1, [x3], 16", "\tfmul\tv1.4s, v1.4s, v6.4s", "\tcbnz\tw0, .L6", "\tstr\tq1, [x2], 16", "\tcmp\tx4, x2",
     "\tbls\t.L4"]


def region(count, cycles, uops, usage):
    sums = [{"InstructionIndex": count, "ResourceIndex": index, "ResourceUsage": use}
            for index, use in enumerate(usage)]
    of_instruction = [{"InstructionIndex": 0, "ResourceIndex": 1, "ResourceUsage": 99}]
    return {"Instructions": ["nop"] * count, "ResourcePressureView": {"ResourcePressureInfo": of_instruction + sums},
            "SummaryView": {"DispatchWidth": 8, "Iterations": 100, "TotalCycles": cycles, "TotaluOps": uops}}


# As LLVM 19 writes it, what is not read left out: bound by a unit, by dispatch, by neither.
REPORT = {"TargetInfo": {"CPUName": "neoverse-n1", "Resources": ["N1UnitB", "N1UnitL.\x00", "N1UnitL.\x01",
                                                                    "N1UnitV0"]},
          "CodeRegions": [region(6, 717, 1100, [1, 1.07, 1.93, 7.03]), region(4, 208, 1600, [1, 0.5, 0.5, 1]),
                          region(4, 800, 800, [1, 0.5, 4.5, 1])]}


def test_assembly():
    sums, y = model.loops_of(ASSEMBLY)
    tap.check_equal(sums, model.Loop("rmsnorm_forward_portable", "sums", 64, SUMS), "the innermost of two loops")
    tap.check_equal(y, model.Loop("rmsnorm_forward_portable", "y", 16, Y), "a loop with a rare block behind it")
    try:
        model.loops_of(ASSEMBLY.replace("\tbls\t.L4", "\tnop"))
        tap.check(False, "a function without a loop is an error")
    except model.Failure as failure:
        tap.check("0 innermost loops" in str(failure), "a function without a loop is an error", str(failure))


def test_figures():
    loops = [model.Loop("a", "sums", 4, []), model.Loop("b", "y", 4, []), model.Loop("a", "y", 8, [])]
    figures = model.figures_of(REPORT, loops)
    tap.check_equal(figures, [model.Figure(1.7925, "N1UnitV0"), model.Figure(0.52, "dispatch"),
                              model.Figure(1.0, "waits")], "cycles per element, and what binds")
    tap.check_equal(model.kernels_of(loops, figures),
                    {"a": model.Figure(2.7925, "N1UnitV0"), "b": model.Figure(0.52, "dispatch")},
                    "a kernel is the sum of its loops")
    table = model.measured_table({"dyt_forward_native": model.Figure(3.0, "waits")}, {"dyt_forward_native": 1.2}, "x",
                                 2.4)
    tap.check("| dyt forward, native | 3.000 | 1.2000 | 2.50 |" in table, "the clock that a measurement implies", table)


def test_every_kernel():
    name = "every kernel is modelled"
    try:
        model.need("meson", "meson")
        llvm_mca, _ = model.newest_llvm_mca()
        folder = model.set_up("aarch64")
    except model.Missing as missing:
        tap.skip(name, str(missing))
        return
    text = (HERE.parent / "src" / "kernels.def").read_text(encoding="utf-8")
    listed = [f"{operation}_{direction.lower()}_{mode}" for direction, operation, mode in
              re.findall(r"^(FORWARD|BACKWARD)\((\w+), (\w+)\)$", text, re.M) if mode != "sleef"]
    loops, _ = model.compile_loops(folder, "neon")
    for cpu in model.CPUS["neon"]:
        _, figures = model.model(llvm_mca, "aarch64", cpu, loops)
        tap.check_equal(sorted(figures), sorted(listed), f"{name} on {cpu}")
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
