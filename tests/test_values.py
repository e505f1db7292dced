"""Values as configuration: JSON and back, hashes, `--set`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

import pytest

import proxysynth as ps
from proxysynth.values import assign, build, decode, digest, encode

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


@pytest.mark.parametrize("name", ps.LOSSES)
def test_every_loss_survives_json(name: str) -> None:
    for value in (ps.LOSSES[name](), ps.ProxySynthesis(ps.LOSSES[name](), mu=2.0)):
        again = decode(json.loads(json.dumps(encode(value))), KINDS)
        assert again == value
        assert digest(again) == digest(value)


def test_a_hash_depends_on_every_field() -> None:
    values = [ps.NormSoftmax(), ps.NormSoftmax(24.0), ps.CosFace(), ps.ProxySynthesis(ps.CosFace())]
    assert len({digest(value) for value in values}) == 4
    assert digest(ps.NormSoftmax()) == digest(ps.NormSoftmax(23.0))


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("rate", "2", Sample(rate=2.0)),
        ("steps", "3,4", Sample(steps=(3, 4))),
        ("steps", "[5]", Sample(steps=(5,))),
        ("steps", "7", Sample(steps=(7,))),
        ("names", "1, 02,x", Sample(names=("1", "02", "x"))),
        ("names", "7", Sample(names=("7",))),
        ("names", '["a,b", "7"]', Sample(names=("a,b", "7"))),
        ("name", "12", Sample(name="12")),
        ("mode", "b", Sample(mode="b")),
        ("limit", "3", Sample(limit=3)),
        ("limit", "none", Sample(limit=None)),
        ("flag", "true", Sample(flag=True)),
        ("flag", "True", Sample(flag=True)),
        ("loss.scale", "30", Sample(loss=ps.NormSoftmax(30.0))),
    ],
)
def test_set(path: str, text: str, expected: Sample) -> None:
    assert assign(Sample(), path, text, KINDS) == expected


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("rte", "2", "Sample has no field 'rte': did you mean 'rate'?"),
        ("loss.scal", "2", "NormSoftmax has no field 'scal': did you mean 'scale'?"),
        ("rate.x", "2", "rate is 0.1 and has no field 'x'"),
        ("rate", "fast", "rate must be a number, got 'fast'"),
        ("rate", '{"kind": ["a"]}', "unknown kind of value ['a']"),
        ("names", "[1]", "names must be a text, got 1"),
        ("mode", "c", "mode must be one of 'a', 'b', got 'c'"),
        ("limit", "2.5", "limit must be a whole number or none, got '2.5'"),
        ("flag", "yes", "flag must be true or false, got 'yes'"),
        ("loss.scale", "-1", "scale must be a finite number above 0"),
    ],
)
def test_set_refuses_in_one_sentence(path: str, text: str, expected: str) -> None:
    with pytest.raises(ValueError) as caught:
        assign(Sample(), path, text, KINDS)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_known_kinds_are_made() -> None:
    with pytest.raises(ValueError, match="unknown kind of value 'System'"):
        decode({"kind": "System", "command": "x"}, KINDS)
    with pytest.raises(ValueError, match="NormSoftmax has no field 'sclae': did you mean 'scale'"):
        build(ps.NormSoftmax, {"sclae": 1.0}, KINDS)
    with pytest.raises(TypeError, match="cannot stand in a value"):
        encode(Sample(name=object()))  # type: ignore[arg-type]


def test_a_new_field_at_its_default_leaves_the_hash():
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
