# SPDX-License-Identifier: BSD-2-Clause
"""The library's operations and kernels, read from its own lists src/operations.def and src/kernels.def."""
import collections
import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"

# What the columns of operations.def say, as text.
Operation = collections.namedtuple("Operation", "name identifier title statistics has_bias has_scale parameter factor")


def _rows(file, macro):
    """The arguments of each use of a macro in the file, without the quotes around texts."""
    text = (SOURCE / file).read_text(encoding="utf-8")
    rows = [[argument.strip().strip('"') for argument in arguments.split(",")]
            for arguments in re.findall(rf"^{macro}\((.*)\)$", text, re.M)]
    if not rows:
        raise RuntimeError(f"{SOURCE / file} has no {macro}")
    return rows


# By name.
OPERATIONS = {row[0]: Operation(*row) for row in _rows("operations.def", "OPERATION")}

# (operation, "forward" or "backward", mode) of each kernel.
KERNELS = [(operation, direction.lower(), mode) for direction in ("FORWARD", "BACKWARD")
           for operation, mode in _rows("kernels.def", direction)]
KERNELS.sort(key=lambda kernel: list(OPERATIONS).index(kernel[0]))

# The operations that the report compares at every shape: the elementwise ones with those that need a reduction.
REDUCTIONS = ("layernorm", "rmsnorm")
ELEMENTWISE = ("dyt", "dyisru")
PAIRS = tuple((reduction, elementwise) for reduction in REDUCTIONS for elementwise in ELEMENTWISE)


def title(operation):
    """What people call an operation. A limit goes by its own name."""
    return OPERATIONS[operation].title if operation in OPERATIONS else operation
