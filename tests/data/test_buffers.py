import gc
import weakref

import torch

from proxysynth.data.buffers import Buffers


def test_memory_is_used_again_once_nobody_holds_it():
    buffers = Buffers((4, 4, 3), most=3)
    first = buffers.take(2)
    place = first.data_ptr()
    second = buffers.take(2)
    assert second.data_ptr() != place
    del first
    assert buffers.take(2).data_ptr() == place


def test_memory_in_use_is_never_given_away():
    buffers = Buffers((4, 4, 3), most=2)
    held = []
    for i in range(6):
        tensor = buffers.take(2).fill_(i)
        held.append(tensor.permute(0, 3, 1, 2)[1:])  # a view of a view
        del tensor
    assert [float(view.mean()) for view in held] == [0, 1, 2, 3, 4, 5]
    assert len({view.data_ptr() for view in held}) == 6


def test_what_backward_needs_is_held():
    buffers = Buffers((4, 4, 3), most=2)
    weight = torch.ones(3, requires_grad=True)
    images = buffers.take(2).fill_(2.0)
    loss = (images * weight).sum()
    del images
    buffers.take(2).fill_(9.0)
    loss.backward()
    assert weight.grad.tolist() == [64.0, 64.0, 64.0]


def test_other_sizes_get_their_own():
    buffers = Buffers((2, 2, 1), most=4)
    assert buffers.take(3).shape == (3, 2, 2, 1)
    assert buffers.take(5).shape == (5, 2, 2, 1)


def test_only_so_many_are_kept():
    buffers = Buffers((2, 2, 1), most=2)
    held = [buffers.take(1) for _ in range(5)]
    assert len({tensor.data_ptr() for tensor in held}) == 5
    assert len(buffers._arrays) == 2


def test_the_memory_goes_with_the_buffers():
    buffers = Buffers((2, 2, 1), most=2)
    buffers.take(1)
    array = weakref.ref(buffers._arrays[0])
    del buffers
    gc.collect()
    assert array() is None
