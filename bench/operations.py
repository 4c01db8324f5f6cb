# SPDX-License-Identifier: BSD-2-Clause
"""Reads the library's operations and kernels from its own lists, src/operations.def and src/kernels.def."""
import collections
import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"

# title is what people call the operation. statistics is the number of values that a forward pass keeps of each row.
# parameter is "alpha", "beta" or "none".
Operation = collections.namedtuple("Operation", "title statistics has_bias parameter")

STATISTICS = {"NO_STATISTICS": 0, "RSTD": 1, "MEAN_AND_RSTD": 2}


def _rows(file, macro):
    """The arguments of each use of a macro in the file."""
    text = (SOURCE / file).read_text(encoding="utf-8")
    rows = [[argument.strip() for argument in arguments.split(",")]
            for arguments in re.findall(rf"^{macro}\((.*)\)$", text, re.M)]
    if not rows:
        raise RuntimeError(f"{SOURCE / file} has no {macro}")
    return rows


# The operations by name, in the order of the list.
OPERATIONS = {name: Operation(title.strip('"'), STATISTICS[statistics], has_bias == "1", parameter)
              for name, _, title, statistics, has_bias, _, parameter, _ in _rows("operations.def", "OPERATION")}

# (operation, "forward" or "backward", mode) of each kernel, by operation.
KERNELS = [(operation, direction.lower(), mode) for direction in ("FORWARD", "BACKWARD")
           for operation, mode, *_ in _rows("kernels.def", direction)]
KERNELS.sort(key=lambda kernel: list(OPERATIONS).index(kernel[0]))

# The report compares these at every shape: norms that reduce a row to its statistics with norms that do not.
REDUCTIONS = ("layernorm", "rmsnorm")
ELEMENTWISE = ("dyt", "dyisru")
CORE = REDUCTIONS + ELEMENTWISE
PAIRS = tuple((reduction, elementwise) for reduction in REDUCTIONS for elementwise in ELEMENTWISE)


def title(operation):
    """What people call an operation. Limits, which are no operations, keep their names."""
    return OPERATIONS[operation].title if operation in OPERATIONS else operation
