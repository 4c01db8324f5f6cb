# SPDX-License-Identifier: BSD-2-Clause
"""The README's program, its build line and what it prints, and its functions with a descriptor, so that tests can check
that the README is right."""
import pathlib
import re


class Readme:
    def __init__(self, source_root):
        self.text = text = (pathlib.Path(source_root) / "README.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.program, self.descriptor, self.training, self.threads = [block for language, block in blocks if language == "c"]
        self.build_line = next(
            line for language, block in blocks if language == "sh"
            for line in block.splitlines() if line.startswith("cc "))
        self.output = next(block for language, block in blocks if language == "text")
