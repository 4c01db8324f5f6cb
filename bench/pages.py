# SPDX-License-Identifier: BSD-2-Clause
"""The blocks that a report consists of, and their text in Markdown, in HTML and for a terminal."""
import dataclasses
import html as escape
import textwrap


@dataclasses.dataclass
class Heading:
    level: int
    text: str


@dataclasses.dataclass
class Paragraph:
    text: str


@dataclasses.dataclass
class Items:
    texts: list


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
    head: list
    rows: list
    labels: int  # the number of columns with words, which come before those with figures


@dataclasses.dataclass
class Plots:
    """Plots, which only HTML shows. If there are none, plots.why says why."""
    plots: object  # plots.Plots


@dataclasses.dataclass
class More:
    """Blocks that HTML hides until the reader opens them."""
    title: str
    blocks: list


# ---- Text ------------------------------------------------------------------------------------------------------------


def aligned(table):
    """The lines of a table in Markdown, with aligned columns."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in [table.head, *table.rows]]
    widths = [max(3, *map(len, column)) for column in zip(*cells)]

    def line(texts):
        padded = (text.ljust(width) if i < table.labels else text.rjust(width)
                  for i, (text, width) in enumerate(zip(texts, widths)))
        return f"| {' | '.join(padded)} |"

    rule = [("-" * width) if i < table.labels else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return [line(cells[0]), line(rule), *map(line, cells[1:])]


def wrapped(lines, width=118):
    for line in lines:
        yield from [line] if line.startswith("|") else textwrap.wrap(line, width) or [""]


def markdown(blocks):
    parts = []
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"{'#' * block.level} {block.text}")
        elif isinstance(block, Paragraph):
            parts.append(textwrap.fill(block.text, 118, break_long_words=False, break_on_hyphens=False))
        elif isinstance(block, Items):
            parts.append("\n".join(textwrap.fill(text, 118, initial_indent="- ", subsequent_indent="  ",
                                                 break_long_words=False, break_on_hyphens=False)
                                   for text in block.texts))
        elif isinstance(block, Table):
            parts.append("\n".join(aligned(block)))
        elif isinstance(block, Plots):
            parts.append("(Plots: see report.html.)" if block.plots.pictures else block.plots.why)
        elif isinstance(block, More):
            parts.append(f"### {block.title}\n\n{markdown(block.blocks)}".rstrip())
    return "\n\n".join(part for part in parts if part) + "\n"


# ---- HTML ------------------------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --faint: #60666d; --line: #d9dde1; --page: #fff; --soft: #f4f6f8;
        --wins: #d6f2dd; --loses: #fbdfd9; --unclear: #efe9d2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --faint: #9aa2ab; --line: #363c43; --page: #15181b; --soft: #1e2226;
          --wins: #174026; --loses: #4d2018; --unclear: #403a1c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 5rem; max-width: 74rem; background: var(--page); color: var(--ink);
       font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1.5rem; }
h2 { font-size: 1.4rem; margin: 3rem 0 .75rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.75rem 0 .5rem; }
p, li { max-width: 56rem; }
.table { overflow-x: auto; margin: .75rem 0 1.25rem; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--faint); font-weight: 600; white-space: nowrap; }
td.number, th.number { text-align: right; white-space: nowrap; }
table.figures td { white-space: nowrap; }
tr:hover td { background: var(--soft); }
td.wins, td.near { background: var(--wins); } td.loses, td.far { background: var(--loses); }
td.unclear { background: var(--unclear); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 1rem;
         margin: 1rem 0; }
figure { margin: 0; } figure svg { width: 100%; height: auto; display: block; }
figcaption { font-size: .875rem; font-weight: 600; margin-bottom: .25rem; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; font-size: .875rem; margin: 1rem 0 0; padding: 0;
          list-style: none; }
.legend svg { width: 2.2rem; height: .7rem; margin-right: .4rem; vertical-align: middle; }
details { margin: 1rem 0; } summary { cursor: pointer; font-weight: 600; }
"""


def _table(table):
    def cells(row, tag):
        for i, cell in enumerate(row):
            kinds = ([] if i < table.labels else ["number"]) + ([cell.kind] if getattr(cell, "kind", "") else [])
            kind = f" class=\"{' '.join(kinds)}\"" if kinds else ""
            hint = getattr(cell, "hint", "")
            kind += f" title=\"{escape.escape(hint)}\"" if hint else ""
            yield f"<{tag}{kind}>{escape.escape(str(cell))}</{tag}>"

    figures = " class=\"figures\"" if len(table.head) > table.labels else ""
    lines = [f"<div class=\"table\"><table{figures}>"]
    if any(table.head):
        lines.append(f"<thead><tr>{''.join(cells(table.head, 'th'))}</tr></thead>")
    lines += ["<tbody>", *(f"<tr>{''.join(cells(row, 'td'))}</tr>" for row in table.rows), "</tbody></table></div>"]
    return "\n".join(lines)


def _plots(plots):
    if not plots.pictures:
        return f"<p>{escape.escape(plots.why)}</p>" if plots.why else ""
    legend = ""
    for line in plots.legend:
        dashes = ' stroke-dasharray="7 5"' if line.dashed else ""
        legend += (f"<li><svg viewBox=\"0 0 44 10\" aria-hidden=\"true\"><line x1=\"0\" y1=\"5\" x2=\"44\" y2=\"5\" "
                   f"stroke=\"{line.colour}\" stroke-width=\"3\"{dashes}/></svg>{escape.escape(line.title)}</li>")
    figures = "".join(f"<figure><figcaption>{escape.escape(caption)}</figcaption>{svg}</figure>\n"
                      for caption, svg in plots.pictures)
    return f"<ul class=\"legend\">{legend}</ul>\n<div class=\"plots\">\n{figures}</div>"


def _block(block):
    if isinstance(block, Heading):
        return f"<h{block.level}>{escape.escape(block.text)}</h{block.level}>"
    if isinstance(block, Paragraph):
        return f"<p>{escape.escape(block.text)}</p>"
    if isinstance(block, Items):
        return "<ul>" + "".join(f"<li>{escape.escape(text)}</li>" for text in block.texts) + "</ul>"
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Plots):
        return _plots(block.plots)
    inner = "\n".join(map(_block, block.blocks))
    return f"<details><summary>{escape.escape(block.title)}</summary>\n{inner}\n</details>"


def html(blocks):
    """The report as one page that loads no other files."""
    title = next(block.text for block in blocks if isinstance(block, Heading))
    body = "\n".join(map(_block, blocks))
    return (f"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            f"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            f"<title>{escape.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
            f"<body>\n{body}\n</body>\n</html>\n")
