"""Generates the tables of README.md, docs/speed.md and docs/decisions.md.

    python docs/make_tables.py [--check]

They come from results/*.csv. A table stands between <!-- NAME --> and <!-- /NAME -->. Nothing there
is typed; what was not measured is a dash. With --check nothing is written, and a table that is not
up to date is an error.
"""

from __future__ import annotations

import csv
import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from proxysynth.paper.tables.cells import LOSS_NAMES
from proxysynth.report.statistics import paired_interval, unpaired_interval

ROOT = Path(__file__).parents[1]
DATASETS = {"cub": "CUB-200-2011, test half", "grocery": "GroceryStore"}
METHODS = {
    "plain": "Norm-softmax, plain",
    "pytorch-metric-learning": "Norm-softmax, pytorch-metric-learning",
    "plain, compiled": "Norm-softmax, plain, `torch.compile`",
    "authors' formulation": "with Proxy Synthesis, authors' formulation",
    "mixed similarity, compiled": "with Proxy Synthesis, mixed-similarity path, `torch.compile`",
    "fused": "**with Proxy Synthesis, fused path (ours)**",
}
# The rows of the README's table: the method in a step of the loss, and in an evaluation. "ours" is
# what the times of evaluations are relative to.
SUMMARY = [
    ("**ours**, with Proxy Synthesis", "fused", "ours"),
    ("Proxy Synthesis, with `torch.compile`", "mixed similarity, compiled", ""),
    ("plain, with `torch.compile`", "plain, compiled", ""),
    ("pytorch-metric-learning", "pytorch-metric-learning", "AccuracyCalculator"),
    ("FAISS", "", "faiss flat"),
]


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a file in results/; none if it was never made."""
    path = ROOT / "results" / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def cell(value: str | None, digits: int = 2) -> str:
    return f"{float(value):.{digits}f}" if value else "–"


def table(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def source(found: list[dict[str, str]]) -> str:
    if not found:
        return "Not measured yet."
    first = found[0]
    changed = " (+: with local changes)" if first["commit"].endswith("+") else ""
    return (
        f"{first['machine']}, torch {first['torch']}, {first['date']}, "
        f"commit {first['commit']}{changed}."
    )


def summary() -> str:
    """Steps of the loss and evaluations in one table, relative to plain PyTorch."""
    steps, memory = step_times(), rows("bench_memory")
    most = max((int(row["classes"]) for row in memory), default=0)
    extra = {row["method"]: row["of_plain"] for row in memory if int(row["classes"]) == most}
    evaluations = {
        int(per_class): {method: float(time) for method, time in methods.items()}
        for (dim, per_class), methods in evaluation_times().items()
        if dim == "512"
    }
    body = [
        [label, *(cell(methods.get(step)) for methods in steps.values()), cell(extra.get(step)),
         *(f"{times.get(evaluation, 1) / times['blocked topk']:.2f}" if evaluation else "–"
           for times in evaluations.values())]
        for label, step, evaluation in SUMMARY
    ]  # fmt: skip
    first_step, *further_steps = steps
    first, *further = evaluations
    head = [
        "", f"step, {first_step:,} classes", *(f"{classes:,} classes" for classes in further_steps),
        f"memory, {most:,} classes", f"evaluation, {first} images per class",
        *(f"{n:,} images per class" for n in further),
    ]  # fmt: skip
    return (
        "Time and peak memory relative to plain PyTorch, with 512 dimensions on one thread; below "
        "1 is better ([details](docs/speed.md)). A step is the forward and backward pass of "
        "Norm-softmax with a batch of 128; its memory includes the proxies' gradient. An "
        "evaluation computes all metrics of 10,000 embeddings.\n\n"
        f"{table(head, body)}"
    )


def step_times(threads: str = "1") -> dict[int, dict[str, str]]:
    """The time of each method relative to the plain loss, by number of classes."""
    times: dict[int, dict[str, str]] = {}
    for row in rows("bench_step"):
        if row["threads"] == threads:
            times.setdefault(int(row["classes"]), {})[row["method"]] = row["of_plain"]
    return dict(sorted(times.items()))


def evaluation_times() -> dict[tuple[str, str], dict[str, str]]:
    """The time of each peer relative to `ps.evaluate`, by dimensions and images per class."""
    times: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows("bench_neighbours"):
        if row.get("times_ours"):
            setting = row["dimensions"], row["per_class"]
            times.setdefault(setting, {})[row["method"]] = row["times_ours"]
    return times


def speed() -> str:
    """A step of the loss, relative to the plain one, on one thread."""
    times, memory = step_times(), rows("bench_memory")
    most = max((int(row["classes"]) for row in memory), default=0)
    extra = {row["method"]: row["of_plain"] for row in memory if int(row["classes"]) == most}
    head = ["", *(f"{classes:,} classes" for classes in times), f"memory, {most:,} classes"]
    body = [
        [label, *(cell(methods.get(method)) for methods in times.values()), cell(extra.get(method))]
        for method, label in METHODS.items()
    ]
    commits = [found[0]["commit"] for found in (rows("bench_step"), memory) if found]
    extra_commit = f" Memory: commit {commits[1]}." if len(set(commits)) == 2 else ""
    return f"{table(head, body)}\n\n{source(rows('bench_step'))}{extra_commit}"


def threads() -> str:
    """A step of the loss with two threads, relative to the plain one."""
    times = step_times(threads="2")
    head = ["", *(f"{classes:,} classes" for classes in times)]
    names = dict.fromkeys(name for methods in times.values() for name in methods)
    body = [
        [METHODS[name], *(cell(methods.get(name)) for methods in times.values())] for name in names
    ]
    return table(head, body)


def few_classes() -> str:
    """Every measurement of a fused step at 98 classes with mu 1, relative to the plain one."""

    def table_a(found: list[dict[str, str]]) -> list[str]:
        ms = {(row["threads"], row["mu"]): float(row["fused_step_ms"]) for row in found}
        ratios = (ms[t, "1"] / ms[t, "0"] if (t, "1") in ms else None for t in ("1", "2"))
        return [f"{ratio:.2f}" if ratio else "–" for ratio in ratios]

    steps = [step_times(threads).get(98, {}).get("fused") for threads in ("1", "2")]
    paper = {(row["row"], row["column"]): row for row in rows("paper_small/tableA")}
    printed = paper.get(("1", "fast step / plain"), {})
    places = [f"CPU, {n} thread{'s' if n > 1 else ''}" for n in (1, 2)]
    variants = {(r["loss"], r["regularizer"]): r for r in rows("study_variant_cost")}
    variant = variants.get(("norm_softmax", "fused"), {})
    body = [
        ["`bench step`: the tables above", "two lines of PyTorch", "one per method",
         *map(cell, steps)],
        ["`bench step`: Table A", "`ps.NormSoftmax`", "one for all methods",
         *table_a(rows("bench_step_table_a"))],
        ["Table A of [the paper's tables](../results/paper_small)", "`ps.NormSoftmax`",
         "one for all methods",
         *(cell(printed.get("mean") if printed.get("ran_on") == at else None) for at in places)],
        ["[cost of the variants](results.md#changes-to-the-method)", "`ps.NormSoftmax`",
         "one for all methods",
         cell(variant.get("of_plain")), "–"],
    ]  # fmt: skip
    return table(["", "relative to", "processes", "one thread", "two threads"], body)


def neighbours() -> str:
    """Evaluation against its peers."""
    peers = {
        "blocked topk": "blocked `topk`",
        "faiss flat": "FAISS, flat",
        "AccuracyCalculator": "pytorch-metric-learning",
        "bare product": "the matrix product alone",
    }
    body = [
        [f"{dim} dimensions, {int(per_class):,} images per class",
         *(cell(methods.get(peer)) for peer in peers)]
        for (dim, per_class), methods in evaluation_times().items()
    ]  # fmt: skip
    return f"{table(['', *peers.values()], body)}\n\n{source(rows('bench_neighbours'))}"


def reranking() -> str:
    """What re-ranking gains and costs."""
    found = rows("bench_reranking")
    if not found:
        return "Not measured yet."
    body = []
    for row in found:
        percents = [f"{100 * float(row[key]):.1f}" for key in ("recall@1", "r_precision", "map@r")]
        costs = [cell(row["prepare_seconds"], 1), cell(row["query_milliseconds"], 1)]
        method = row["method"] if row["method"] == "none" else f"`{row['method']}`"
        body.append([DATASETS[row["data"]], method, *percents, *costs])
    head = ["", "re-ranking", "Recall@1", "R-precision", "MAP@R", "prepare, s", "query, ms"]
    sizes = {
        row["data"]: f"{int(row['pictures']):,} images of {row['classes']} classes" for row in found
    }
    data = "; ".join(f"{DATASETS[name]}: {size}" for name, size in sizes.items())
    caption = (
        f"{data}. Each image searches the others, with the ImageNet features of "
        f"{found[0]['model']} at 224 pixels, not fine-tuned. Metrics in percent; times for "
        "preparing the index and for one query, on one thread (`python -m benchmarks.reranking`):"
    )
    return f"{caption}\n\n{table(head, body)}\n\n{source(found)}"


def near_duplicates() -> str:
    """What thresholds of `duplicates` find."""
    found = rows("bench_near_duplicates")
    if not found:
        return "Not measured yet."
    kinds = {
        "brighter": "25% brighter",
        "mirrored": "mirrored",
        "jpeg_40": "JPEG, quality 40",
        "cropped": "cropped by 5%",
        "half_size": "half the size",
    }
    body = []
    for row in found:
        shares = [f"{100 * float(row[kind]):.0f}" for kind in kinds]
        pairs = [row["pairs_of_one_label"], row["pairs_of_two_labels"]]
        body.append([row["threshold"], *pairs, *shares])
    first = found[0]
    caption = (
        f"{int(first['images']):,} photographs of {DATASETS[first['data']]}, with the ImageNet "
        f"features of {first['model']} at 224 pixels, not fine-tuned: the number of pairs that "
        f"reach a threshold, and the percentage of {first['copies']} altered copies that reach it "
        "with their original (`python -m benchmarks.near_duplicates`):"
    )
    head = ["threshold", "pairs of the same product", "of two products", *kinds.values()]
    return f"{caption}\n\n{table(head, body)}\n\n{source(found)}"


Values = dict[int, float]  # by seed


def results() -> str:
    """Every loss with and without Proxy Synthesis, on unseen classes of photographs."""
    found = rows("study_cub200")
    labels = {"recall@1": "Recall@1", "map@r": "MAP@R"}
    body = []
    for measure, label in labels.items():
        pairs = [with_and_without(found, loss, measure) for loss in LOSS_NAMES]
        means = (f"{statistics.fmean(plain.values()):.1f}" if plain else "–" for plain, _ in pairs)
        body.append([label, *means])
        changes = [difference(*pair).partition(" ")[0] or "–" for pair in pairs]
        body.append(["change", *changes])
    return (
        "CUB-200-2011: 100 species for training, 100 others to retrieve. EfficientNet-Lite0 at 96 "
        "pixels, published settings; percent, mean of 3 seeds. *Change* is the difference with "
        "Proxy Synthesis, in bold if its 95% interval excludes zero.\n\n"
        + table(["", *LOSS_NAMES.values()], body)
    )


def tuned() -> str:
    """Each loss with and without, after a search of its settings: `proxysynth mlrc`, small."""
    body = []
    for loss, name in LOSS_NAMES.items():
        line, values = [name], {}
        for kind in ("none", "proxy_synthesis"):
            path = ROOT / "results" / "mlrc_small" / f"{loss}-{kind}" / "result.json"
            result = json.loads(path.read_text()) if path.exists() else None
            values[kind] = [100 * v for v in result["concatenated"]["map@r"]] if result else []
            line.append(f"{result['best']['loss.scale']:.1f}" if result else "–")
            line.append(spread(dict(enumerate(values[kind]))))
        if all(values.values()):
            low, high = unpaired_interval(values["none"], values["proxy_synthesis"])
            plain, mixed = (statistics.fmean(each) for each in values.values())
            change = signed(mixed - plain)
            line.append(f"**{change}**" if low > 0 or high < 0 else change)
        if any(values.values()):
            body.append([*line, "–"][:6])
    if not body:
        return ""
    head = ["", "best scale", "MAP@R", "best scale", "with Proxy Synthesis", "difference"]
    return (
        "**After a hyper-parameter search for each loss, with and without Proxy Synthesis** "
        "(`proxysynth mlrc --scale small`: 5 trials and 4 folds of the seen characters, then 3 "
        "repetitions; the embeddings of four models are concatenated, each from the epoch that is "
        "best on its held-out fold). Proxy-NCA is the paper's Eq. i. Bold: Welch's 95% interval "
        "excludes zero.\n\n"
        f"{table(head, body)}"
    )


def with_and_without(found: list[dict[str, str]], loss: str, measure: str) -> list[Values]:
    """A measure in percent by seed, without and with Proxy Synthesis."""
    return [
        {int(row["seed"]): 100 * float(row[measure]) for row in found
         if (row["loss"], row["regularizer"]) == (loss, kind)}
        for kind in ("none", "proxy_synthesis")
    ]  # fmt: skip


def spread(values: Values) -> str:
    if not values:
        return "–"
    mean = f"{statistics.fmean(values.values()):.1f}"
    return f"{mean} ± {statistics.stdev(values.values()):.1f}" if len(values) > 1 else mean


def signed(value: float, not_zero: bool = False) -> str:
    """With one digit, or as many as it takes to tell the value from zero."""
    digits = 1
    while not_zero and round(value, digits) == 0:
        digits += 1
    return f"{round(value, digits) + 0.0:+.{digits}f}"  # no minus before a zero


def difference(plain: Values, mixed: Values) -> str:
    """Of the seeds that both have: "+1.2 [+0.9, +1.5]", in bold where the seeds support it."""
    seeds = sorted(plain.keys() & mixed.keys())
    if not seeds:
        return ""
    a, b = [plain[seed] for seed in seeds], [mixed[seed] for seed in seeds]
    change = signed(statistics.fmean(b) - statistics.fmean(a))
    if len(seeds) == 1:
        return change
    low, high = paired_interval(a, b)
    sure = low > 0 or high < 0
    interval = f"[{signed(low, not_zero=sure)}, {signed(high, not_zero=sure)}]"
    return f"{f'**{change}**' if sure else change} {interval}"


def fill(page: Path, tables: dict[str, Callable[[], str]]) -> None:
    """Write the tables into the page, each between its marks; with --check, only compare."""
    text = made = page.read_text()
    for name, function in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
        made, count = pattern.subn(lambda m, f=function: f"{m[1]}{f()}\n{m[2]}", made)  # type: ignore[misc]
        if count != 1:
            sys.exit(f"{page.name} must have one place for the table {name!r}, has {count}")
    if "--check" not in sys.argv:
        page.write_text(made)
    elif made != text:
        sys.exit(f"{page.name} is not up to date: run python {sys.argv[0]}")


if __name__ == "__main__":
    docs = ROOT / "docs"
    fill(ROOT / "README.md", {"results": results, "speed": summary})
    tables = {"speed": speed, "threads": threads, "98": few_classes, "neighbours": neighbours}
    fill(docs / "speed.md", tables)
    fill(docs / "decisions.md", {"near_duplicates": near_duplicates, "reranking": reranking})
