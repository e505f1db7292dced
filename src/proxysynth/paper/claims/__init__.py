"""The paper's statements about results, each tested by a stated rule on our numbers and on the
paper's own. Statements about equations, settings, data and code are tested in `tests/`.

    claims.toml   the sentences, with the rule that tests each; where the paper contradicts itself,
                  and where this code does something else than its text
    rules.py      the rules
    claim.py      what a rule reads, and how margins over seeds become a verdict
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib.resources import files

from proxysynth.paper.claims import rules
from proxysynth.paper.claims.claim import Checked, Claim, Evidence, Finding, Verdict, check
from proxysynth.paper.printed import notes_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "CLAIMS", "DIFFERENCES", "Checked", "Claim", "Evidence", "Finding", "Verdict", "check",
    "contradictions",
]  # fmt: skip

_FILE = tomllib.loads((files(__package__) / "claims.toml").read_text(encoding="utf-8"))
DIFFERENCES: tuple[str, ...] = tuple(_FILE["differences"])
"""Where this code does something else than the paper's text."""
NOTED = ("conventional", "mlrc", "table5", "tableA", "tableD")
"""Files of printed numbers with notes on contradictions."""


def _claim(rule: str, given: dict[str, object] | None = None, **fields: str) -> Claim:
    return Claim(rule=partial(getattr(rules, rule), **(given or {})), **fields)  # type: ignore[arg-type]


CLAIMS = tuple(_claim(**entry) for entry in _FILE["claim"])


def contradictions(checked: Sequence[Checked]) -> list[str]:
    """Of the text, of printed numbers with each other, and of sentences with their own tables."""
    numbers = dict.fromkeys(note for name in NOTED for note in notes_of(name))
    sentences = [
        f"“{one.claim.sentence}” ({one.claim.where}): {one.paper.evidence}."
        for one in checked
        if one.paper.status == "contradicts itself"
    ]
    noted = [f"{note[:1].upper()}{note[1:]}." for note in numbers]
    return [*_FILE["contradictions"], *noted, *sentences]
