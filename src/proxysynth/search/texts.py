"""Millions of short texts that stay on disk: their bytes end to end, and where each one ends.

text  b"a.jpgb/c.jpg"      ends  [0, 5, 12]      texts[1] == "b/c.jpg"
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from proxysynth.values import nearest


class Texts(Sequence[str]):
    """Texts in two arrays, which may be mapped from a file: a text is read when it is asked for.

    Args:
        text: (bytes,) uint8.
        ends: (n + 1,) int64, from 0 on.
    """

    def __init__(self, text: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self._text = text
        self._ends = ends

    def __len__(self) -> int:
        return max(0, len(self._ends) - 1)

    @overload
    def __getitem__(self, which: int) -> str: ...
    @overload
    def __getitem__(self, which: slice) -> list[str]: ...
    def __getitem__(self, which: int | slice) -> str | list[str]:
        if isinstance(which, slice):
            return [self[i] for i in range(*which.indices(len(self)))]
        return decoded(self.raw(which))

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def raw(self, number: int) -> bytes:
        """The bytes of one text."""
        n = len(self)
        if not -n <= number < n:
            raise IndexError(f"there are {n} texts, number {number} is not one of them")
        number %= n
        start, stop = int(self._ends[number]), int(self._ends[number + 1])
        # A file from elsewhere may say anything here.
        if not 0 <= start <= stop <= len(self._text):
            raise ValueError(f"the text of item {number} lies outside of the file: it is damaged")
        return self._text[start:stop].tobytes()

    def find(self, text: str) -> int | None:
        """Where a text stands, by halving: they must be sorted by their bytes."""
        wanted = encoded(text)
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.raw(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self.raw(low) == wanted else None


class Labels(Sequence[Any]):
    """The label of each item, None where it has none.

    Args:
        names: of the labels.
        codes: (n,) int32, each item's place in `names`, -1 for none.
    """

    def __init__(self, names: Texts, codes: NDArray[np.int32]) -> None:
        self.names = names
        self.codes = codes

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, which: Any) -> Any:
        """One item's label, or a list of them for a slice."""
        if isinstance(which, slice):
            return [self[i] for i in range(*which.indices(len(self)))]
        code = int(self.codes[which])
        if code >= len(self.names):
            raise ValueError(
                f"item {which} has the label {code} of {len(self.names)}: the file is damaged"
            )
        return None if code < 0 else self.names[code]

    def items_of(self, label: str) -> NDArray[np.int64]:
        """The numbers of the items that have this label, ascending."""
        names = list(self.names)
        if not names:
            raise ValueError(f"the items have no labels, so none is {label!r}: leave it out")
        if label not in names:
            raise ValueError(f"no label {label!r} in the index: {_short(nearest(label, names))}")
        return np.flatnonzero(self.codes == names.index(label)).astype(np.int64)


def pack(texts: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Texts as the two arrays of `Texts`."""
    parts = [encoded(text) for text in texts]
    ends = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=ends[1:])
    return np.frombuffer(b"".join(parts), dtype=np.uint8), ends


def encoded(text: str) -> bytes:
    """Bytes of a text; a file's name that is no text keeps its bytes."""
    return text.encode("utf-8", "surrogateescape")


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _short(text: str, most: int = 300) -> str:
    return text if len(text) <= most else f"{text[:most]} ..."
