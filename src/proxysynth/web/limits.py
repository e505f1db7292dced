"""What a request may cost, as one value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of a request; what goes beyond is refused with a sentence.

    Args:
        upload_bytes: of an upload, counted while it arrives.
        body_bytes: of any other request's body: numbers take far more memory than their text.
        pixels: of an uploaded picture, read from its header before anything is decoded.
        body_seconds: until the whole body must have come.
        answer_seconds: until there must be an answer.
        map_points: items on the map; of more, an even sample is shown.
    """

    upload_bytes: int = 20 * 2**20
    body_bytes: int = 2 * 2**20
    pixels: int = 50_000_000
    body_seconds: float = 30.0
    answer_seconds: float = 60.0
    map_points: int = 20_000
