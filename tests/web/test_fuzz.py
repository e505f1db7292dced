"""The service against its own description: whatever is sent, no failure, and what it promised."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")
schemathesis = pytest.importorskip("schemathesis")

from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
ROUTES = [
    "GET /api/health",
    "POST /api/search",
    "POST /api/search/vector",
    "GET /api/items",
    "GET /api/items/{number}",
    "GET /api/items/{number}/search",
    "GET /api/items/{number}/thumbnail",
    "GET /api/items/{number}/picture",
    "GET /api/labels",
    "GET /api/map",
    "GET /report",
]


@pytest.fixture(scope="module")
def operations(address):
    """Every route of the description, by name."""
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    found = [operation.ok() for operation in schema.get_all_operations()]
    return {f"{one.method.upper()} {one.path}": one for one in found}


def test_every_route_is_in_the_openapi_schema(operations) -> None:
    assert sorted(operations) == sorted(ROUTES)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("route", ROUTES)
def test_fuzzed_requests_cause_no_server_error(operations, route, mode) -> None:
    send(operations[route], mode, examples=12)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("route", ROUTES)
def test_many_fuzzed_requests_cause_no_server_error(operations, route, mode) -> None:
    send(operations[route], mode, examples=200)


def send(operation, mode, examples: int) -> None:
    if mode == GenerationMode.NEGATIVE and not (operation.query or operation.body):
        pytest.skip("nothing that could be wrong")

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case) -> None:
        case.call_and_validate(checks=CHECKS)

    check()
