"""Values as configuration: JSON and back, hashes, `--set`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

import proxysynth as ps
from proxysynth.values import (
    build,
    choices_hint,
    decode,
    describe_differences,
    digest,
    encode,
    parse_field,
    parse_settings,
    suggestion,
)

KINDS = {kind.__name__: kind for kind in [*ps.LOSSES.values(), ps.ProxySynthesis]}


@dataclass(frozen=True)
class Sample:
    steps: tuple[int, ...] = (1, 2)
    names: tuple[str, ...] = ()
    rate: float = 0.1
    name: str = "x"
    mode: Literal["a", "b"] = "a"
    limit: int | None = None
    flag: bool = False
    loss: ps.NormSoftmax | ps.ProxyNCA = ps.NormSoftmax()


def test_hash_depends_on_every_field() -> None:
    values = [ps.NormSoftmax(), ps.NormSoftmax(24.0), ps.CosFace(), ps.ProxySynthesis(ps.CosFace())]
    assert len({digest(value) for value in values}) == 4
    assert digest(ps.NormSoftmax()) == digest(ps.NormSoftmax(23.0))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("rate", "2", 2.0),
        ("rate", 2, 2.0),
        ("steps", "3,4", (3, 4)),
        ("steps", "[5]", (5,)),
        ("steps", "7", (7,)),
        ("steps", [7, 8], (7, 8)),
        ("names", "1, 02,x", ("1", "02", "x")),
        ("names", "7", ("7",)),
        ("names", '["a,b", "7"]', ("a,b", "7")),
        ("name", "12", "12"),
        ("name", "1e999", "1e999"),
        ("mode", "b", "b"),
        ("limit", "3", 3),
        ("limit", "none", None),
        ("flag", "true", True),
        ("flag", "True", True),
        ("flag", True, True),
    ],
)
def test_field_is_parsed_from_text_or_file(name: str, value: object, expected: object) -> None:
    assert parse_field(Sample, name, value, KINDS) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("rte", "2", "did you mean 'rate'?"),
        ("rate", "fast", "rate must be a number"),
        ("rate", '{"kind": ["a"]}', "rate must be a number"),
        ("names", "[1]", "names must be a string, got 1"),
        ("mode", "c", "mode must be one of 'a', 'b'"),
        ("limit", "2.5", "limit must be an integer or none"),
        ("limit", True, "limit must be an integer or none"),
        ("flag", "yes", "flag must be true or false"),
        ("limit", str(2**63), "limit must be a finite number below 2**63, got 9223372036854775808"),
        ("rate", "1e999", "rate must be a finite number below 2**63, got 1e999"),
    ],
)
def test_invalid_value_is_rejected_in_one_line(name: str, value: object, expected: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_field(Sample, name, value, KINDS)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_first_name_with_same_prefix_is_suggested() -> None:
    assert suggestion("lite", ["lite2", "lite0", "heavy"]) == "did you mean 'lite0'? "
    assert suggestion("lihte2", ["lite2", "lite0"]) == "did you mean 'lite2'? "
    assert suggestion("x", ["xyz"]) == ""
    assert choices_hint("scal", ["scale"]) == "did you mean 'scale'?"


def test_equally_close_names_are_not_guessed() -> None:
    assert suggestion("table7", ["table1", "table2", "figure1"]) == ""
    assert "'figure1'" in suggestion("figur1", ["table1", "figure1", "figure2"])


def test_differences_call_none_what_users_type() -> None:
    text = describe_differences({"image_size": 96}, {"image_size": None})
    assert text == "image_size 96 there, none here"


def test_settings() -> None:
    assert parse_settings(["a=1", "b.c=x=y", "a=2"]) == {"a": "2", "b.c": "x=y"}
    for wrong in ("lr", "=3"):
        with pytest.raises(ValueError, match="field=value"):
            parse_settings([wrong])


def test_unknown_kinds_are_rejected() -> None:
    with pytest.raises(ValueError, match="unknown kind of value 'System'"):
        decode({"kind": "System", "command": "x"}, KINDS)
    with pytest.raises(ValueError, match="'sclae'.*'scale'"):
        build(ps.NormSoftmax, {"sclae": 1.0}, KINDS)
    with pytest.raises(TypeError, match="JSON"):
        encode(Sample(name=object()))  # type: ignore[arg-type]


def test_new_field_at_default_keeps_hash():
    @dataclass(frozen=True)
    class Before:
        a: int = 1

    @dataclass(frozen=True)
    class After:
        a: int = 1
        b: float = 0.5

    After.__name__ = "Before"
    assert digest(Before(2)) == digest(After(2))
    assert digest(After(2, 0.6)) != digest(After(2))
    assert digest((Before(2), Before(1))) == digest((After(2), After(1)))
    assert digest({"one": Before(2)}) == digest({"one": After(2)})
