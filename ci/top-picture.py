"""A terminal's screen, as tmux captures it with its attributes, as SVG."""
import re
import sys
from xml.sax.saxutils import escape

COLUMN, LINE, TOP = 8.4, 18, 14
FORE, BACK = "#d8dee9", "#1d232d"

lines = [line.rstrip("\n") for line in sys.stdin]
width = max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in lines)
out = []
for row, line in enumerate(lines):
    at, bold, dim, reverse = 0, False, False, False
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        codes = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if codes:
            for code in codes.group(1).split(";"):
                if code in ("", "0"):
                    bold = dim = reverse = False
                bold |= code == "1"
                dim |= code == "2"
                reverse |= code == "7"
                if code == "22":
                    bold = dim = False
                if code == "27":
                    reverse = False
            continue
        if reverse and part:
            x, w = 8 + at * COLUMN, len(part) * COLUMN
            out.append(f'<rect x="{x:.1f}" y="{8 + row * LINE}" width="{w:.1f}" '
                       f'height="{LINE}" fill="{FORE}"/>')
        if part.strip():
            x = 8 + (at + len(part) - len(part.lstrip())) * COLUMN
            text = part.strip()
            style = f' fill="{BACK}"' if reverse else ' opacity=".65"' if dim else ""
            style += ' font-weight="bold"' if bold else ""
            out.append(f'<text x="{x:.1f}" y="{8 + TOP + row * LINE}" '
                       f'textLength="{len(text) * COLUMN:.1f}"{style}>{escape(text)}</text>')
        at += len(part)
w, h = 16 + width * COLUMN, 16 + len(lines) * LINE
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w:.0f} {h}" '
      f'font-family="ui-monospace,Menlo,Consolas,monospace" font-size="14" fill="{FORE}" '
      'xml:space="preserve">')
print("<title>softring top</title>")
print(f'<rect width="100%" height="100%" rx="6" fill="{BACK}"/>')
print("\n".join(out))
print("</svg>")
