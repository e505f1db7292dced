"""HTML as text: what is not markup yet is escaped on its way in, so no name can break a page."""

from __future__ import annotations

import html
from importlib.resources import files

VOID = frozenset({"img", "br"})  # elements without an end


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escape(text: object) -> Html:
    """Any text as markup that shows it."""
    return Html(html.escape(str(text), quote=True))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element. `class_` and `data_x` spell class and data-x; None leaves an attribute out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{join(children)}</{name}>")


def join(parts: object) -> Html:
    """Parts one after the other; None is nothing, lists are opened."""
    if parts is None:
        return Html("")
    if isinstance(parts, (list, tuple)):
        return Html("".join(join(part) for part in parts))
    return parts if isinstance(parts, Html) else escape(parts)


def page(title: str, *body: object) -> Html:
    """A whole document that asks no other host for anything."""
    style = files(__package__).joinpath("templates/style.css").read_text(encoding="utf-8")
    return Html(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        # Nothing is fetched and nothing runs, whatever a name or a picture holds.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"{tag('main', *body)}\n</body>\n</html>\n"
    )
