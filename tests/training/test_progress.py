import io
import time
from dataclasses import replace

import pytest
import torch

from proxysynth.training import Resources, Silent, train
from proxysynth.training.callbacks import Bars, open_tensorboard
from proxysynth.training.resources import device_name


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_without_a_terminal_prints_plain_messages():
    file = io.StringIO()
    bars = Bars(file)
    bars.say("epoch 1/2 [a path]")
    with bars.task("training", total=10) as tick:
        tick(5, "loss 1.0")
    assert file.getvalue() == "epoch 1/2 [a path]\n"


def test_a_log_is_never_silent_for_long(monkeypatch):
    file, clock = io.StringIO(), {"now": 0.0}
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])
    bars = Bars(file)
    with bars.task("training", total=9000, done=2000) as tick:
        for clock["now"] in (20.0, 40.0, 50.0, 80.0):
            tick(1000, "loss 1.0")
    assert file.getvalue().split("\n") == [
        "training 4,000/9,000  loss 1.0",
        "training 6,000/9,000  loss 1.0",
        "",
    ]


def test_progress_bar_shows_loss_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    file = Terminal()
    with Bars(file).task("training", total=10, done=2) as tick:
        for _ in range(4):
            tick(2, "loss 1.234")
    assert "10/10" in file.getvalue()
    assert "loss 1.234" in file.getvalue()


def nested(file):
    """What is shown of three levels of bars."""
    bars = Bars(file)
    with bars.task("trials", 5, 2) as trials:
        trials(1, "best MAP@R 61.2, 12 min left")
        with bars.task("folds of trial 3", 4) as folds:
            folds(1, "MAP@R 60.1")
            with bars.task("training", 100) as tick:
                tick(10, "epoch 3/20  loss 1.2")
                bars.say("a sentence")
                end = time.monotonic() + (10 if file.isatty() else 0)
                while "epoch 3/20" not in file.getvalue() and time.monotonic() < end:
                    time.sleep(0.02)  # until they are drawn
    with bars.task("repetitions", 3) as again:
        again(1, "")
    return file.getvalue()


def test_nested_progress_bars(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    shown = nested(Terminal())
    for part in ("trials", "3/5", "best MAP@R 61.2", "12 min left", "  folds of trial 3", "1/4",
                 "    training", "epoch 3/20", "a sentence", "repetitions"):  # fmt: skip
        assert part in shown
    assert nested(io.StringIO()) == "a sentence\n"


def test_an_untrained_backbone_is_named(glyph_run, tmp_path):
    file = io.StringIO()
    train(replace(glyph_run, epochs=1, warmup_epochs=1), tmp_path / "run", progress=Bars(file))
    assert "warmup_epochs (1) >= epochs (1)" in file.getvalue()


def test_silent_progress_prints_nothing(capsys):
    with Silent().task("training", 10) as tick:
        tick(5, "")
    Silent().say("nothing")
    assert capsys.readouterr() == ("", "")


def test_missing_tensorboard_is_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match="tensorboard"):
        open_tensorboard(tmp_path, wanted=True, step=0)
    open_tensorboard(tmp_path, wanted=False, step=0)({"step": 1})


def test_tensorboard_receives_every_metric(tmp_path, monkeypatch):
    written, made = {}, {}

    class Writer:
        def __init__(self, folder, purge_step):
            made.update(folder=folder, purge_step=purge_step)

        def add_scalar(self, name, value, step):
            written[name] = (value, step)

        def flush(self):
            made["flushed"] = True

    fake = type("module", (), {"SummaryWriter": Writer})
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", fake)
    board = open_tensorboard(tmp_path, wanted=True, step=7)
    board({"epoch": 1, "step": 9, "loss": 2.0, "recall@1": 0.5, "validation": {"recall@1": 0.4}})
    assert made == {"folder": str(tmp_path / "tensorboard"), "purge_step": 8, "flushed": True}
    assert written == {
        "test/epoch": (1, 9),
        "train/loss": (2.0, 9),
        "test/recall@1": (0.5, 9),
        "validation/recall@1": (0.4, 9),
    }


def test_device_selection_and_name():
    device = Resources().torch_device()
    assert device.type in ("cpu", "cuda", "mps")
    assert device_name(torch.device("cpu")).startswith("cpu (")
    assert Resources(device="cpu").torch_device() == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda:77", "tpu", "gpu"])
def test_unavailable_device_is_rejected(name):
    with pytest.raises(ValueError, match=name):
        Resources(device=name).torch_device()


@pytest.mark.parametrize("wrong", [{"workers": -1}, {"threads": 0}, {"checkpoint_steps": 0}])
def test_invalid_resources_are_rejected(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Resources(**wrong)
