"""The protocol from end to end: what it trains, in what order, and what it never looks at."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict, replace
from statistics import fmean

import optuna
import pytest
import torch

import proxysynth as ps
from protocols.mlrc.tiny_study import tiny_study
from proxysynth.losses import LOSSES
from proxysynth.protocols.conventional import Conventional
from proxysynth.protocols.mlrc import make_study, run_study, search, study as study_module
from proxysynth.protocols.mlrc.spaces import build_loss
from proxysynth.regularizers import REGULARIZERS
from proxysynth.training import NotFinite, Resources, Run, WrongFolder, load, read_result
from proxysynth.training.prepare import open_splits
from training.tiny_pictures import pictures

MACHINE = Resources(threads=1, workers=0)


def test_trial_value_is_the_mean_of_its_folds(finished):
    folder, outcome = finished
    study = outcome.study
    assert len(outcome.trials) == 3
    for trial in outcome.trials:
        home = folder / "trials" / study.key(trial.params)
        results = [read_result(home / f"fold{i}") for i in range(2)]
        assert trial.folds == tuple(result.validation["map@r"] for result in results)
        assert trial.value == fmean(trial.folds)
    assert outcome.best.value == max(trial.value for trial in outcome.trials)
    # Their weights are gone, the results stay.
    assert not list((folder / "trials").rglob("*.safetensors"))


def test_folds_are_disjoint_and_exclude_unseen_classes(finished):
    _, outcome = finished
    study = outcome.study
    whole = open_splits(replace(study.base, split=replace(study.base.split, fold=None)))
    held = []
    for fold in range(2):
        splits = open_splits(study.run(outcome.best.params, fold, 0))
        train, validation = set(splits.train.classes), set(splits.query.classes)
        assert not train & validation
        assert train | validation == set(whole.train.classes)
        assert not (train | validation) & set(whole.query.classes)
        held += sorted(validation)
    assert sorted(held) == sorted(whole.train.classes)


def test_repetitions_use_the_best_setting_with_other_seeds(finished):
    """Separated and concatenated, worked out again from the models that were kept."""
    folder, outcome = finished
    study, best = outcome.study, outcome.best
    whole = open_splits(replace(study.base, split=replace(study.base.split, fold=None)))
    labels = torch.from_numpy(whole.query.labels.copy())
    for index, measured in enumerate(outcome.repetitions):
        home = folder / "repetitions" / f"{study.key(best.params)}-seed{1 + index}"
        models = [load(home / f"fold{i}") for i in range(2)]
        assert [model.run for model in models] == [
            study.run(best.params, fold, 1 + index) for fold in range(2)
        ]
        tested = [Conventional()(model, whole.query) for model in models]
        for name in ("precision@1", "r_precision", "map@r"):
            mean = fmean(item.metrics[name] for item in tested)
            assert measured.separated[name] == pytest.approx(mean, abs=1e-12)
        joined = torch.cat([t.query / t.query.norm(dim=1, keepdim=True) for t in tested], dim=1)
        again = ps.evaluate(joined, labels, ks=(1,))
        for name, value in measured.concatenated.items():
            assert value == pytest.approx(again[name], abs=1e-6)
    assert outcome.repetitions[0] != outcome.repetitions[1]


def test_finished_study_trains_nothing(finished, monkeypatch):
    folder, outcome = finished
    monkeypatch.setattr(search, "train", None)
    assert run_study(outcome.study, folder, resources=MACHINE) == outcome


def test_more_trials_continue_an_existing_study(finished, tmp_path, monkeypatch):
    began = watched(monkeypatch)
    few = tiny_study(trials=1, repetitions=1)
    first = run_study(few, tmp_path / "s", resources=MACHINE)
    assert len(began) == 4
    more = run_study(tiny_study(trials=3, repetitions=1), tmp_path / "s", resources=MACHINE)
    assert more.trials[:1] == first.trials
    # Two trials more; and the repetition, if another setting is the best now.
    moved = more.best.params != first.best.params
    assert len(began) == 4 + 4 + (2 if moved else 0)
    assert [t.params for t in more.trials] == [t.params for t in finished[1].trials]
    with pytest.raises(ValueError, match="--trials"):
        run_study(few, tmp_path / "s", resources=MACHINE)


def test_study_interrupted_anywhere_resumes_without_retraining(finished, tmp_path, monkeypatch):
    """The first attempt ends before its first training, the next before its second, and so on."""
    train, began, whole = search.train, [], Counter()

    def once_each(run: Run, place, **more):
        if read_result(place) is not None:
            return train(run, place, **more)  # which gives the result that is there
        if len(began) == 1:
            began.clear()
            raise KeyboardInterrupt
        result = train(run, place, **more)
        began.append(place)
        whole[place] += 1
        return result

    monkeypatch.setattr(search, "train", once_each)
    study, attempts = finished[1].study, 0
    while attempts < 20:
        attempts += 1
        try:
            outcome = run_study(study, tmp_path / "s", resources=MACHINE)
        except KeyboardInterrupt:
            continue
        break
    assert attempts > 5
    assert set(whole.values()) == {1}
    assert len(whole) == 3 * 2 + 2 * 2
    assert outcome.repetitions == finished[1].repetitions
    assert [t.value for t in outcome.trials] == [t.value for t in finished[1].trials]


def test_diverged_fold_scores_zero(tmp_path, monkeypatch):
    train = search.train

    def diverge(run: Run, place, **more):
        if "trials" in place.parts and place.name == "fold1" and run.proxy_lr != 0.01:
            raise NotFinite("the loss is not finite", 1, ())
        return train(run, place, **more)

    monkeypatch.setattr(search, "train", diverge)
    outcome = run_study(tiny_study(trials=2), tmp_path / "s", resources=MACHINE)
    assert outcome.best.index == 0
    assert outcome.trials[1].folds[1] == 0.0
    assert outcome.trials[1].note == "the loss is not finite"


def test_pruned_trials_stop_early_and_cannot_be_best(tmp_path, monkeypatch):
    began = watched(monkeypatch)
    study = tiny_study(trials=8)
    study = replace(study, scale=replace(study.scale, prune=True))
    outcome = run_study(study, tmp_path / "s", resources=MACHINE)
    pruned = [trial for trial in outcome.trials if trial.pruned]
    assert pruned
    assert {len(trial.folds) for trial in pruned} == {1}
    assert not outcome.best.pruned
    assert len(began) == 8 * 2 - len(pruned) + 2


def test_unseen_classes_are_not_opened_before_repetitions(tmp_path, monkeypatch):
    """Their pictures are rubbish until the search is over: who opened one would stop."""
    root = pictures(tmp_path / "set", classes=8, each=3)
    study = make_study(str(root), "norm_softmax", "none", "smoke", trials=2, epochs=1, dim=8)
    whole = open_splits(replace(study.base, split=replace(study.base.split, fold=None)))
    unseen = [whole.query.path(i) for i in range(len(whole.query))]
    good = {path: path.read_bytes() for path in unseen}
    for path in unseen:
        path.write_bytes(b"not a picture")

    # Left as they are, the search goes through, and the end of the first repetition stops.
    with pytest.raises(ValueError, match=r"class\d"):
        run_study(study, tmp_path / "stopped", resources=MACHINE)
    assert len(list((tmp_path / "stopped" / "repetitions").rglob("result.json"))) == 2

    searched = []
    repeat = study_module.repeat

    def mended(work, *rest):
        searched.extend((work.folder / "trials").rglob("result.json"))
        for path, data in good.items():
            path.write_bytes(data)
        return repeat(work, *rest)

    monkeypatch.setattr(study_module, "repeat", mended)
    outcome = run_study(study, tmp_path / "s", resources=MACHINE)
    assert len(searched) == 2 * 2
    assert 0 < outcome.repetitions[0].concatenated["map@r"] <= 1


def test_too_few_classes_or_images_are_rejected(tmp_path):
    few = pictures(tmp_path / "few", classes=6, each=3)
    with pytest.raises(ValueError, match="2 folds"):
        run_study(make_study(str(few), scale="smoke"), tmp_path / "a")
    lonely = pictures(tmp_path / "lonely", classes=10, each=3)
    study = make_study(str(lonely), scale="smoke")
    seen = open_splits(study.run({}, 0, 0)).train.classes[0]
    for name in ("1.png", "2.png"):
        (lonely / seen / name).unlink()
    with pytest.raises(ValueError, match=f"'{seen}' has 1 image"):
        run_study(study, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_folder_or_storage_of_another_study_is_rejected(finished, tmp_path):
    folder, outcome = finished
    study = outcome.study
    wider = replace(study, space=(replace(study.space[0], high=0.5), *study.space[1:]))
    with pytest.raises(WrongFolder, match=r"space.proxy_lr.high 0.04 there"):
        run_study(wider, folder, resources=MACHINE)
    with pytest.raises(WrongFolder, match="glyphs-norm_softmax-none"):
        run_study(wider, tmp_path / "s", storage=str(folder / "study.db"), resources=MACHINE)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "cat.jpg").touch()
    with pytest.raises(WrongFolder, match="cat.jpg"):
        run_study(study, tmp_path / "pictures", resources=MACHINE)


def test_scales_can_share_one_storage(tmp_path):
    storage = str(tmp_path / "shared.db")
    smoke = tiny_study(trials=1)
    for seed, name in enumerate(("small", "smoke", "paper")):  # the seed stands for other settings
        study = replace(smoke, scale_name=name, seed=seed)
        run_study(study, tmp_path / name, storage=storage, resources=MACHINE)
    names = optuna.get_all_study_names(f"sqlite:///{storage}")
    ours = {f"glyphs-norm_softmax-none{scale}" for scale in ("", "-smoke", "-paper")}
    assert {name for name in names if " " not in name} == ours


def test_study_named_without_scale_by_an_earlier_version_is_resumed(
    finished, tmp_path, monkeypatch
):
    earlier = type(finished[1].study).name
    with monkeypatch.context() as before:
        before.setattr("proxysynth.protocols.mlrc.settings.Study.name_with_scale", earlier)
        first = run_study(tiny_study(trials=1), tmp_path / "s", resources=MACHINE)
    monkeypatch.setattr(search, "train", None)
    assert run_study(tiny_study(trials=1), tmp_path / "s", resources=MACHINE) == first


def test_worker_wrongly_declared_dead_counts_no_trial_twice(tmp_path, monkeypatch):
    """Its trial is told failed while it trains: another one takes its place."""
    train, stolen = search.train, []

    def robbed(run: Run, place, **more):
        result = train(run, place, **more)
        if place.name == "fold1" and not stolen:
            where = f"sqlite:///{tmp_path / 's' / 'study.db'}"
            study = optuna.load_study(study_name="glyphs-norm_softmax-none-smoke", storage=where)
            study.tell(0, state=optuna.trial.TrialState.FAIL)
            stolen.append(place)
        return result

    monkeypatch.setattr(search, "train", robbed)
    outcome = run_study(tiny_study(trials=2), tmp_path / "s", resources=MACHINE)
    assert stolen
    assert [trial.index for trial in outcome.trials] == [0, 1]
    assert [trial.lost for trial in outcome.trials] == [1, 0]


def test_loss_and_regularizer_names_reach_the_training(tmp_path, monkeypatch):
    seen: list[Run] = []
    train = search.train

    def note(run: Run, place, **more):
        seen.append(run)
        return train(run, place, **more)

    monkeypatch.setattr(search, "train", note)
    study = tiny_study("soft_triple", "proxy_synthesis", trials=1)
    outcome = run_study(study, tmp_path / "s", resources=MACHINE)
    assert {type(run.loss).__name__ for run in seen} == {"ProxySynthesis"}
    assert {type(run.loss.loss).__name__ for run in seen} == {"SoftTriple"}
    assert set(asdict(outcome.best)["params"]) == {item.name for item in study.space}


def watched(monkeypatch) -> list:
    """The folders of all trainings that begin from now on."""
    train, began = search.train, []

    def note(run, place, **more):
        began.append(place)
        return train(run, place, **more)

    monkeypatch.setattr(search, "train", note)
    return began


def test_machines_need_to_share_only_the_storage(finished, tmp_path, monkeypatch):
    """One does a trial and a fold of the next; another does the rest in its own folder."""
    train, began = search.train, []

    def stop_at_the_fourth(run: Run, place, **more):
        if len(began) == 3:
            raise KeyboardInterrupt
        began.append(place)
        return train(run, place, **more)

    monkeypatch.setattr(search, "train", stop_at_the_fourth)
    storage, study = str(tmp_path / "journal.log"), finished[1].study
    with pytest.raises(KeyboardInterrupt):
        run_study(study, tmp_path / "here", storage=storage, resources=MACHINE)
    monkeypatch.setattr(search, "train", train)
    began = watched(monkeypatch)
    outcome = run_study(study, tmp_path / "there", storage=storage, resources=MACHINE)
    assert len(began) == 3 + 4  # of six folds three were done; two repetitions of two
    assert [t.value for t in outcome.trials] == [t.value for t in finished[1].trials]
    assert outcome.repetitions == finished[1].repetitions


def test_missing_optuna_error_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ValueError, match="pip install"):
        run_study(tiny_study(), tmp_path / "s")


def possible(loss: str, regularizer: str) -> bool:
    try:
        build_loss(loss, regularizer, {})
    except ValueError:
        return False
    return True


PAIRS = [(a, b) for a in LOSSES for b in REGULARIZERS if possible(a, b)]


def test_most_loss_regularizer_pairs_are_valid():
    assert len(PAIRS) >= 8 + 8 + 1 + 7 + 7  # none, Proxy Synthesis, Virtual Softmax, the mixups


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "regularizer"), PAIRS)
def test_full_protocol(tmp_path, loss, regularizer):
    study = tiny_study(loss, regularizer, trials=2)
    outcome = run_study(study, tmp_path / "s", resources=MACHINE)
    assert set(outcome.best.params) == {item.name for item in study.space}
    assert 0 < outcome.best.value <= 1
    assert 0 < outcome.repetitions[0].concatenated["map@r"] <= 1
