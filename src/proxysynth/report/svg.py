"""A matplotlib figure as SVG that lives inside a page: its colours and letters are the page's.

The figure is drawn with stand-in colours, which become CSS variables here. So one drawing serves
light and dark, and a reader's own font sets the labels.
"""

from __future__ import annotations

import io
import re

from matplotlib import rc_context
from matplotlib.figure import Figure

from .markup import Html, escape

INK = "#010101"  # text and axes
FAINT = "#010102"  # grid lines
SERIES = tuple(f"#0102{number:02x}" for number in range(8))
"""Stand-ins of --series-0 to --series-7, in the order that style.css mixes them."""
ALIKE = "#010301"  # pairs of the same class
UNLIKE = "#010302"  # pairs of different classes

_VARIABLES = {
    INK: "var(--muted)",
    FAINT: "var(--line)",
    ALIKE: "var(--right)",
    UNLIKE: "var(--wrong)",
    **{color: f"var(--series-{number})" for number, color in enumerate(SERIES)},
}
_PAINT = re.compile(r"(fill|stroke): (#[0-9a-f]{6})")


def inline_svg(figure: Figure, name: str, description: str) -> Html:
    """The figure as an <svg> element.

    Args:
        figure: drawn with the colours of this module.
        name: unique in the page; the ids inside begin with it.
        description: what a reader who cannot see it hears.
    """
    file = io.StringIO()
    nobody = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    # The salt and the missing date make the same figure the same text every time.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(file, format="svg", transparent=True, metadata=nobody)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    box = re.search(r'viewBox="([^"]+)"', text)
    assert box is not None
    body = text[text.index(">") + 1 :]
    for foreign in (r"<!--.*?-->\s*", r"<style.*?</style>\s*", r" font-family: [^;\"]*;"):
        body = re.sub(
            foreign, "", body, flags=re.DOTALL
        )  # a <style> here would rule the whole page
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'xlink:href="#', f'href="#{name}-', body)
    body = body.replace("url(#", f"url(#{name}-")
    body = re.sub(r"font: [^;\"]*?(\d+(?:\.\d+)?px)[^;\"]*", r"font-size: \1", body)
    body = _PAINT.sub(lambda m: f"{m[1]}: {_VARIABLES.get(m[2], m[2])}", body)
    start = f'<svg class="figure" viewBox="{box[1]}" role="img" aria-label="{escape(description)}">'
    return Html(start + body.strip())
