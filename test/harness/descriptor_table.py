# SPDX-License-Identifier: BSD-2-Clause
"""The tables of docs/descriptor.md, for the tests that hold it to its word."""
import collections
import pathlib
import re

Field = collections.namedtuple("Field", "name type offset since default meaning")


class DescriptorTable:
    def __init__(self, source_root):
        text = (pathlib.Path(source_root) / "docs/descriptor.md").read_text(encoding="utf-8")
        lines = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
        cells = [[cell.strip(" `") for cell in line.split("|")] for line in lines]
        self.fields = [Field(*row)._replace(offset=int(row[2])) for row in cells if len(row) == 6 and row[2].isdigit()]
        self.sizes = {row[0]: int(row[1]) for row in cells if len(row) == 2 and row[1].isdigit()}
