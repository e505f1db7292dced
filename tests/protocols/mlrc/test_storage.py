"""Storages by name, and those that cannot be reached."""

from __future__ import annotations

import optuna
import pytest

from proxysynth.protocols.mlrc.storage import StorageFailed, open_storage, reaching, shown


def test_a_path_is_a_journal_or_sqlite(tmp_path):
    journal = open_storage(str(tmp_path / "journal.log"))
    assert isinstance(journal, optuna.storages.JournalStorage)
    for text in (str(tmp_path / "a.db"), f"sqlite:///{tmp_path / 'b.db'}"):
        assert isinstance(open_storage(text), optuna.storages.RDBStorage)
    assert {path.name for path in tmp_path.iterdir()} >= {"a.db", "b.db"}


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////nowhere/at/all/study.db",
        "/nowhere/at/all/journal.log",
        "postgresql://me:secret@nowhere.invalid/studies",
        "nosuchdatabase://host/studies",
    ],
)
def test_what_cannot_be_reached_is_one_sentence_without_the_password(text):
    with pytest.raises(StorageFailed) as failed:
        open_storage(text)
    told = str(failed.value)
    assert told.startswith(f"the storage {shown(text)} cannot be used (")
    assert "secret" not in told
    assert "\n" not in told


def test_a_storage_that_breaks_off_is_one_sentence():
    with pytest.raises(StorageFailed, match="gone away"), reaching("sqlite:///x.db"):
        raise optuna.exceptions.StorageInternalError("gone away")


def test_a_missing_file_of_the_training_is_not_the_storages_fault():
    with pytest.raises(FileNotFoundError), reaching("sqlite:///x.db"):
        raise FileNotFoundError("weights.pth")
