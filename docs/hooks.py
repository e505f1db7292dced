"""Pages of the documentation site that are made when it is built, and links that leave docs/.

    mkdocs build --strict

Made from the code: the command reference, the settings of a run, the API reference. Made from other
files of the repository: the changelog, the notebooks, and so on.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import posixpath
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# Files outside docs/ that the site shows as pages.
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "results/README.md": "measurements.md",
}
# Where a link to something else outside docs/ leads.
STAND_INS = {
    "README.md": "index.md",
    "results": "measurements.md",
    "results/mlrc_small": "measurements.md",
    "results/paper_small": "data/paper_small/paper.html",
}
MEASUREMENTS = ("*.csv", "mlrc_small/*/result.json", "paper_small/paper.html")
API = {
    "losses": "Losses",
    "regularizers": "Regularizers",
    "models.proxy_head": "ProxyHead",
    "retrieval": "Retrieval",
    "training": "Training",
    "protocols": "Protocols",
    "search.export": "Export",  # the function hides the module of the same name
    "search": "Search",
    "web": "Search service",
    "data": "Data",
    "distributed": "Distributed training",
    "report": "Reports",
}
# What to describe of a module with helpers of its own, and names of other modules on a page (a
# package hides a module that has the name of its function).
MEMBERS = {"search.export": ["export", "Exported", "NotTheSame"]}
FURTHER = {"search": ["search.build.build_index"], "data": ["data.glyphs.glyphs"]}
COMMON = {"--help", "--json", "--traceback"}  # options of every command, described once
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expand * in the navigation, leave out missing pages, add those that are not listed."""
    docs = Path(config.docs_dir)
    pages = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    pages += made()
    listed: set[str] = set()

    def expand(entry: Any) -> list[Any]:
        if isinstance(entry, dict):
            ((title, inside),) = entry.items()
            found = [each for item in _as_list(inside) for each in expand(item)]
            single = found[:1] if isinstance(inside, str) else None
            return [{title: single[0] if single else found}] if found else []
        pattern = re.escape(entry).replace(r"\*", r"[^/]*")
        matching = [page for page in pages if re.fullmatch(pattern, page)]
        listed.update(matching)
        return list(matching)

    nav = [each for entry in config.nav or [] for each in expand(entry)]
    others = [page for page in pages if page not in listed]
    config.nav = [*nav, {"More": others}] if others else nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the made pages and the data files of results/."""
    for name, text in made().items():
        files.append(File.generated(config, name, content=text))
    for pattern in MEASUREMENTS:
        for path in sorted((ROOT / "results").glob(pattern)):
            name = f"data/{path.relative_to(ROOT / 'results').as_posix()}"
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave docs/ to the page of the site that shows the same."""
    here = page.file.src_uri
    sources = {target: source for source, target in PAGES.items()}
    source = here if here.startswith("notebooks/") else f"docs/{here}"
    folder = posixpath.dirname(sources.get(here, source))

    def lead(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        if ":" in target:
            return found[0]
        full = posixpath.normpath(posixpath.join(folder, target))
        if full.startswith("docs/"):
            there = full.removeprefix("docs/")
        else:
            there = PAGES.get(full) or STAND_INS.get(full) or full.replace(".ipynb", ".md")
        return posixpath.relpath(there, posixpath.dirname(here) or ".") + anchor

    return LINK.sub(lead, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep `--out` on one line: browsers break a line after each hyphen."""

    def keep(found: re.Match[str]) -> str:
        return re.sub(r"\S*-\S*", r'<span class="kept">\g<0></span>', found[0])

    return re.sub(r"(?<=<code>)[^<\n]*-[^<\n]*(?=</code>)", keep, html)


_made: dict[str, str] = {}


def made() -> dict[str, str]:
    """The text of every made page by its name; made once."""
    if not _made:
        _made.update({page: (ROOT / source).read_text() for source, page in PAGES.items()})
        _made["measurements.md"] += data_files()
        _made["commands.md"] = commands()
        _made["settings.md"] = settings()
        _made["api/index.md"] = public_names()
        _made.update({f"api/{_slug(name)}.md": api_page(name) for name in API})
        for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
            _made[f"notebooks/{path.stem}.md"] = notebook(path)
    return _made


def data_files() -> str:
    """A list of the files of results/ that the site carries."""
    lines = ["", "", "## Files", ""]
    for pattern in MEASUREMENTS:
        for path in sorted((ROOT / "results").glob(pattern)):
            name = path.relative_to(ROOT / "results").as_posix()
            lines.append(f"- [{name}](../docs/data/{name})")
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Every command with its usage and its options, from the parser."""
    os.environ["COLUMNS"] = "78"
    from proxysynth.cli.parser import parser

    text = [
        "# Command line",
        "",
        "All commands and their options; `proxysynth COMMAND --help` prints the same in the "
        "terminal. Every command also takes `--json`, which prints the result as one JSON object "
        "on the last line of standard output (messages go to standard error), and `--traceback`, "
        "which shows the traceback of an error. The exit status is 0 for success, 1 for a failure, "
        "2 if the arguments or the data cannot be used, and 130 after Ctrl-C; a training that "
        "SIGTERM or SIGHUP ended has 143 or 129.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    found = list(_commands(parser()))
    for name, command in found:
        text.append(f"| [`{name}`{{.flag}}](#{name.replace(' ', '-')}) | {command.description} |")
    for name, command in found:
        about = command.description or ""
        text += ["", f"## {name}", "", f"{about[:1].upper()}{about[1:]}.", ""]
        # Continuation lines are indented for the prefix as well.
        usage = command.format_usage().removeprefix("usage: ").replace("\n" + 7 * " ", "\n")
        text += ["```text", usage.rstrip(), "```", ""]
        actions = [a for a in command._actions if a.help and not {*a.option_strings} & COMMON]
        if not actions:
            continue
        text += ["| argument | meaning |", "|---|---|"]
        formatter = argparse.HelpFormatter(command.prog)
        for action in sorted(actions, key=lambda action: bool(action.option_strings)):
            value = "" if action.nargs == 0 else f" {action.metavar or action.dest}"
            flags = ", ".join(f"{flag}{value}" for flag in action.option_strings) or value.strip()
            shown = formatter._expand_help(action)
            # A | between backticks does not end the cell.
            text.append(f"| `{flags}`{{.flag}} | {shown.replace('|', chr(92) + '|')} |")
    return "\n".join(text) + "\n"


def _commands(top: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    """The commands that do something, with their full names, in the order of the help."""
    inner = [a for a in top._actions if isinstance(a, argparse._SubParsersAction)]
    if not inner:
        return [(top.prog, top)]
    return [each for command in inner[0].choices.values() for each in _commands(command)]


def settings() -> str:
    """All fields of a run with their help, as `train --show-config` prints them."""
    from proxysynth.cli.config import to_toml
    from proxysynth.training.defaults import run_from_options

    toml = to_toml(run_from_options("glyphs"))
    return (
        "# Settings of a run\n\n"
        "`proxysynth train --show-config` prints this file for the given data, loss and "
        "regularizer; `--config FILE` reads it, and `--set field=value` sets one field. Below are "
        f"the defaults for glyphs.\n\n```{{.toml .wrapped}}\n{toml.rstrip()}\n```\n"
    )


def public_names() -> str:
    """The names of `import proxysynth as ps` with links to their descriptions."""
    import proxysynth as ps

    lines = [
        "# Public names",
        "",
        "```text",
        "import proxysynth as ps",
        "```",
        "",
        "| name | description |",
        "|---|---|",
    ]
    for name in sorted(set(ps.__all__) - {"__version__"}, key=str.lower):
        value = getattr(ps, name)
        doc = (value.__doc__ or "").strip().splitlines() if callable(value) else []
        what = re.split(r"\s{2,}", doc[0])[0] if doc else "a dict from keys to classes"
        home = next((home for home in API if callable(value) and name in described(home)), None)
        home = home or (value.__module__.removeprefix("proxysynth.") if callable(value) else None)
        shown = f"[`ps.{name}`][proxysynth.{home}.{name}]" if home else f"`ps.{name}`"
        lines.append(f"| {shown} | {what.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def described(name: str) -> list[str]:
    """The names that the page of a module describes: its __all__, or what it defines or imports."""
    module = import_module(f"proxysynth.{name}")
    if name in MEMBERS or hasattr(module, "__all__"):
        return MEMBERS.get(name) or list(module.__all__)
    elsewhere = {each.rpartition(".")[2] for each in FURTHER.get(name, ())}
    return [
        each
        for each, value in vars(module).items()
        if getattr(value, "__module__", "").startswith("proxysynth.")
        and not each.startswith("_")
        and each not in elsewhere
    ]


def api_page(name: str) -> str:
    """The names of a subpackage, described by their docstrings: first those of `proxysynth`."""
    import proxysynth as ps

    def order(member: str) -> tuple[bool, bool, str]:
        return member.isupper(), member not in ps.__all__, member

    text = f"# {API[name]}\n\n::: proxysynth.{name}\n    options:\n      show_root_heading: false\n"
    text += "      show_root_toc_entry: false\n"
    text += f"      members: [{', '.join(sorted(described(name), key=order))}]\n"
    return text + "".join(f"\n::: proxysynth.{each}\n" for each in FURTHER.get(name, ()))


def notebook(path: Path) -> str:
    """A notebook as Markdown: its text, its code, its outputs; pictures are embedded."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            plain = "".join(output.get("text") or data.get("text/plain", ""))
            if "image/png" in data:
                kept = base64.b64encode(base64.b64decode("".join(data["image/png"]))).decode()
                parts.append(f"![Output of the cell above](data:image/png;base64,{kept})")
            elif plain.strip():
                parts.append(f"```text\n{plain.rstrip()}\n```")
    return "\n\n".join(parts) + f"\n\nThe notebook itself: `notebooks/{path.name}`.\n"


def _slug(name: str) -> str:
    return name.rpartition(".")[2]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
