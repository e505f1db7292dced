"""HTML pages from Jinja2 templates. A page is one file: no script runs and nothing is fetched."""

from __future__ import annotations

import base64
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from proxysynth.errors import cannot_write
from proxysynth.files import write_bytes
from proxysynth.formatting import and_join, change, count, duration, metric_name, percent, points


def tone(change: float) -> str:
    """The CSS class of a difference: "better", "worse", or "" for one that prints as zero."""
    return "" if points(change, 2) == "0.00" else "better" if change > 0 else "worse"


def with_code(text: str) -> Markup:
    """The text with the parts between backticks as code."""
    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def data_uri(image: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


@cache
def environment(*packages: str) -> Environment:
    """The templates of these packages, which may extend `base.html` and import `macros.html`.

    Everything is escaped unless it is a `markupsafe.Markup`.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (*packages, "proxysynth.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (and_join, change, count, duration, metric_name, percent, points, tone, with_code)
    made.filters |= {function.__name__: function for function in filters}
    return made


def render(template: str, **context: Any) -> str:
    """A page from one of the report's templates."""
    return environment().get_template(template).render(**context)


def write_page(path: Path, page: str) -> Path:
    """Write a page atomically and return its path: if it fails, an earlier page stays."""
    # A file name may contain bytes that are not text; they become question marks.
    data = page.encode("utf-8", "replace")
    try:
        write_bytes(path, data)
    except OSError as error:
        raise cannot_write(path, error, "nothing else was changed") from error
    return path
