"""A `map` over threads that each compute with one core.

PyTorch by itself splits every single operation over the cores and waits for the slowest of them
each time. Thousands of short operations then wait thousands of times, which costs a little on an
idle machine and a lot on a busy one. Here every core takes a whole block and waits for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]

MOST = 16
"""Threads; with more of them Python itself becomes the bottleneck."""


@contextmanager
def workers(device: torch.device) -> Iterator[Map]:
    """`map` in as many threads as torch uses; the plain `map` where that is one, or off the CPU.

    The functions mapped may run at the same time and in any order; results come in order.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield map
        return
    pool = ThreadPoolExecutor(min(threads, MOST), initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
