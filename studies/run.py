"""Train the missing Runs of a study and write its table: `studies/run.py NAME --store DIR`."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

from plans import STUDIES, Planned

from proxysynth.files import write_bytes
from proxysynth.memory import keep_freed_memory
from proxysynth.paper.render import rows_csv
from proxysynth.paper.store import Store, train_missing
from proxysynth.training.callbacks import Bars
from proxysynth.training.inference import load
from proxysynth.training.resources import Resources
from proxysynth.training.run_folder import Result, read_metrics

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a study, see --list")
    parser.add_argument("--list", action="store_true", help="list the studies")
    folder = Path("runs/studies")
    parser.add_argument("--store", type=Path, default=folder, help="where the Runs are trained")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the tables go")
    parser.add_argument("--cub", metavar="ROOT", help="the folder of CUB-200-2011")
    parser.add_argument("--grocery", metavar="ROOT", help="the folder of GroceryStore")
    parser.add_argument("--only-table", action="store_true", help="write tables without training")
    parser.add_argument("--threads", type=int, help="of torch")
    args = parser.parse_args()
    if args.list or not args.names:
        for name, study in STUDIES.items():
            print(f"{name:20} {study.__doc__}")
        return
    keep_freed_memory()
    store, resources = Store(args.store), Resources(threads=args.threads)
    for name in args.names:
        planned = list(STUDIES[name](cub=args.cub, grocery=args.grocery))
        done = committed_rows(args.results / f"study_{name}.csv", planned)
        runs = [item.run for item in planned if key(item) not in done]
        if not args.only_table:
            train_missing(runs, store, resources, Bars(), lambda run: 30.0)
        print(write_table(name, planned, store, args.results))


def key(item: Planned) -> tuple[str, ...]:
    """The identity of a row, which does not depend on the folders of the data and the store."""
    return tuple(map(str, item.columns.values()))


def committed_rows(path: Path, planned: list[Planned]) -> dict[tuple[str, ...], dict[str, str]]:
    """The rows that the table already has; their Runs are not trained again."""
    if not path.exists() or not planned:
        return {}
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {tuple(row.get(name) or "" for name in planned[0].columns): row for row in rows}


def write_table(name: str, planned: list[Planned], store: Store, folder: Path) -> str:
    """Write the finished Runs as CSV and return a one-line summary."""
    path = folder / f"study_{name}.csv"
    done = committed_rows(path, planned)
    rows: list[dict[str, Any]] = []
    for item in planned:
        result = store.result(item.run)
        if result is not None:
            rows.append({**item.columns, **row(item, result, store)})
        elif key(item) in done:
            rows.append(done[key(item)])
    if rows:
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(path, rows_csv(rows).encode())
    return f"{name}: {len(rows)} of {len(planned)} runs are finished; {path}"


def row(item: Planned, result: Result, store: Store) -> dict[str, Any]:
    """The metrics of a Run: of its last epoch and, separately, of the best epoch on test data."""
    folder = store.folder_of(item.run)
    history = read_metrics(folder)
    fold = item.run.split.fold
    best = max(line["recall@1"] for line in history)
    more = {}
    if item.measure is not None:
        measure = item.measure
        more = store.cached("measures", item.run, lambda: measure(load(folder)))
    return {
        "tested_on": "unseen classes" if fold is None else "held-out seen classes",
        **{key: f"{value:.5f}" for key, value in result.metrics.items() if _wanted(key)},
        **{key: f"{value:.5f}" for key, value in more.items()},
        "untrained_recall@1": f"{result.untrained['recall@1']:.5f}",
        "best_on_test_recall@1": f"{best:.5f}" if len(history) > 1 else "",
        "epoch": result.epoch,
        "run": result.run,
        "commit": result.provenance.get("commit", ""),
    }


def _wanted(measure: str) -> bool:
    return measure.startswith("recall@") or measure in ("r_precision", "map@r", "accuracy")


if __name__ == "__main__":
    main()
