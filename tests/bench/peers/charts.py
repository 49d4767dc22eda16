"""Small pictures as SVG, from nothing but numbers."""

import math
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 320, 60, 40, 30, 150
COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")


def lines(title, across, series):
    """A line for each name: `{name: [(x, y), …]}`."""
    points = [point for line in series.values() for point in line]
    marks = _marks(max((p[1] for p in points), default=1))
    x, y = _scale(LEFT, WIDTH - RIGHT, 0, max((p[0] for p in points), default=1)), _scale(HEIGHT - BOTTOM, TOP, 0, marks[-1])
    below = [(x(at), f"{at:g}") for at in sorted({point[0] for point in points})]
    parts = [_frame(title, across, marks, y, below), _legend(series)]
    for color, line in zip(_colors(), series.values()):
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
    return _svg(parts)


def boxes(title, series):
    """Boxes of (least, quartiles, most), for each name a row of them: `{name: [(…5 numbers), …]}`."""
    marks = _marks(max((box[-1] for row in series.values() for box in row), default=1))
    y = _scale(HEIGHT - BOTTOM, TOP, 0, marks[-1])
    slots = max((len(row) for row in series.values()), default=1)
    step = (WIDTH - LEFT - RIGHT) / max(slots, 1)
    width = step / (len(series) + 1)
    below = [(LEFT + (slot + 0.5) * step, str(slot + 1)) for slot in range(slots)] if slots > 1 else []
    parts = [_frame(title, "period" if slots > 1 else "", marks, y, below), _legend(series)]
    for place, (color, row) in enumerate(zip(_colors(), series.values())):
        for slot, (least, low, middle, high, largest) in enumerate(row):
            left = LEFT + slot * step + (place + 0.5) * width
            center = left + width * 0.4
            for end, edge in ((least, low), (high, largest)):
                parts.append(f'<line x1="{center:.1f}" x2="{center:.1f}" y1="{y(end):.1f}" y2="{y(edge):.1f}" stroke="{color}"/>')
            parts.append(
                f'<rect x="{left:.1f}" y="{y(high):.1f}" width="{width * 0.8:.1f}" height="{max(y(low) - y(high), 1):.1f}" fill="{color}" fill-opacity="0.4" stroke="{color}"/>'
            )
            parts.append(f'<line x1="{left:.1f}" x2="{left + width * 0.8:.1f}" y1="{y(middle):.1f}" y2="{y(middle):.1f}" stroke="{color}" stroke-width="2"/>')
    return _svg(parts)


def _colors():
    return (COLORS[at % len(COLORS)] for at in range(1000))


def _scale(start, end, low, high):
    span = (high - low) or 1
    return lambda value: start + (value - low) / span * (end - start)


def _marks(most):
    """Round numbers from nothing to the least one that is no less than the most."""
    rough = most / 4 or 0.25
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough)
    return [step * at for at in range(math.ceil(most / step) + 1)] if most else [0, 1]


def _frame(title, across, marks, y, below):
    lines = "".join(
        f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{float(f"{value:.6g}"):,g}</text>'
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>'
        for value in marks
    )
    under = "".join(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{escape(text)}</text>' for at, text in below)
    axes = f'<path d="M{LEFT},{TOP} V{HEIGHT - BOTTOM} H{WIDTH - RIGHT}" fill="none" stroke="#333"/>'
    named = f'<text x="{LEFT}" y="18" font-weight="bold">{escape(title)}</text><text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(across)}</text>'
    return lines + under + axes + named


def _legend(series):
    return "".join(
        f'<rect x="{WIDTH - RIGHT + 12}" y="{TOP + 18 * at}" width="10" height="10" fill="{color}"/>'
        f'<text x="{WIDTH - RIGHT + 28}" y="{TOP + 18 * at + 10}">{escape(name)}</text>'
        for at, (color, name) in enumerate(zip(_colors(), series))
    )


def _svg(parts):
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )
