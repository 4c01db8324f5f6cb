# SPDX-License-Identifier: BSD-2-Clause
"""Tables of the report, and their text in Markdown."""
import dataclasses
import textwrap


@dataclasses.dataclass
class Cell:
    """A cell of a table. HTML shows its kind as a colour, and its hint when the mouse pointer is over the cell."""
    text: str
    kind: str = ""
    hint: str = ""

    def __str__(self):
        return self.text


@dataclasses.dataclass
class Table:
    title: str
    note: str
    head: list
    rows: list
    labels: int  # the number of columns with words, which come before those with figures

    def kinds(self):
        return {cell.kind for row in self.rows for cell in row if isinstance(cell, Cell)}


def wrapped(text, width=118):
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def aligned(table):
    """The text of a table in Markdown, with aligned columns."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in [table.head, *table.rows]]
    widths = [max(3, *map(len, column)) for column in zip(*cells)]

    def line(texts):
        padded = (text.ljust(width) if i < table.labels else text.rjust(width)
                  for i, (text, width) in enumerate(zip(texts, widths)))
        return f"| {' | '.join(padded)} |"

    rule = [("-" * width) if i < table.labels else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join([line(cells[0]), line(rule), *map(line, cells[1:])])


def markdown(table):
    """A table with its title and its note in Markdown."""
    parts = [f"### {table.title}", wrapped(table.note) if table.note else "", aligned(table) if table.rows else ""]
    return "\n\n".join(part for part in parts if part)
