# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""A picture of the ranks' time, as SVG: of each rank a band for what it computed, one for what it
communicated, and one for what of that was exposed. Each column of the picture is as dark as the part
of its time that the band has."""

import html

from reading import VERSION

COLUMNS_WIDE = 1000             # of the time's axis
LEFT, TOP = 120, 40
BAND, GAP = 14, 12              # heights of a band, and of what is between two ranks
RANKS_DRAWN = 128
BANDS = (("compute", "#4477aa"), ("communication", "#ccaa33"), ("exposed", "#cc3344"))


def shares(intervals, begin, end):
    """Which part of each column's time is in the intervals."""
    found = [0.0] * COLUMNS_WIDE
    scale = COLUMNS_WIDE / max(end - begin, 1)
    for first, last in intervals:
        low, high = (first - begin) * scale, (last - begin) * scale
        column = min(int(low), COLUMNS_WIDE - 1)
        while column < COLUMNS_WIDE and column < high:
            found[column] += min(high, column + 1) - max(low, column)
            column += 1
    return found


def band(intervals, span, y, color):
    """A rectangle for each run of columns that are equally dark."""
    levels = [min(10, -int(-share * 10 // 1)) for share in shares(intervals, *span)] + [0]
    begin = 0
    for column, level in enumerate(levels):
        if level == levels[begin] and column < COLUMNS_WIDE:
            continue
        if levels[begin]:
            yield f'<rect x="{LEFT + begin}" y="{y}" width="{column - begin}" height="{BAND}" ' \
                f'fill="{color}" fill-opacity="{levels[begin] / 10}"/>'
        begin = column


def text(x, y, words, anchor="start"):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(words)}</text>'


def legend(span):
    x = LEFT
    for name, color in BANDS:
        yield f'<rect x="{x}" y="10" width="12" height="12" fill="{color}"/>'
        yield text(x + 18, 21, name)
        x += 150
    yield text(LEFT + COLUMNS_WIDE, 21, f"{(span[1] - span[0]) / 1e6:.3f} ms", "end")


def draw(ranks):
    """Returns the file's text."""
    spans = [rank.span for rank in ranks if rank.span[1]]
    span = (min(one[0] for one in spans), max(one[1] for one in spans)) if spans else (0, 1)
    lines, y = list(legend(span)), TOP
    for rank in ranks[:RANKS_DRAWN]:
        lines.append(text(LEFT - 8, y + 2 * BAND - 4, f"rank {rank.name}", "end"))
        for intervals, (_, color) in zip((rank.computes, rank.moves, rank.exposed), BANDS):
            lines.append(f'<rect x="{LEFT}" y="{y}" width="{COLUMNS_WIDE}" height="{BAND}" '
                         'fill="#f0f0f0"/>')
            lines += band(intervals or [], span, y, color)
            y += BAND + 1
        y += GAP
    if len(ranks) > RANKS_DRAWN:
        y += BAND
        lines.append(text(LEFT, y, f"... and {len(ranks) - RANKS_DRAWN} more ranks"))
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + COLUMNS_WIDE + 20}" ' \
        f'height="{y + 10}" font-family="sans-serif" font-size="12">\n' \
        f'<title>ceoverlap {VERSION}: exposed communication</title>\n' \
        '<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(lines) + "\n</svg>\n"
