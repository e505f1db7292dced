"""Generates the tables of docs/results.md from results/.

    python docs/make_results.py [--check]

As in make_tables.py a table stands between <!-- NAME --> and <!-- /NAME -->.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from make_tables import LOSS_NAMES, Values, difference, fill, rows, spread, table, tuned

PAGE = Path(__file__).parent / "results.md"
MEASURES = {
    "recall@1": "Recall@1",
    "recall@2": "@2",
    "recall@4": "@4",
    "recall@8": "@8",
    "r_precision": "R-precision",
    "map@r": "MAP@R",
    "best_on_test_recall@1": "best on test, Recall@1",
}
KINDS = {
    "none": "",
    "proxy_synthesis": "Proxy Synthesis",
    "virtual_softmax": "Virtual Softmax",
    "input_mixup": "Input Mixup",
    "manifold_mixup": "Manifold Mixup",
    "harder_partners": "harder partners",
    "hardest_partners": "hardest partners",
    "parents_apart": "parents apart",
    "per_pair": "per pair",
    "twice_as_many": "twice as many",
    "three_parents": "three parents",
    "four_parents": "four parents",
    "mu_ramp": "mu ramp",
    "soft_weight": "soft pairs, weight",
    "soft_margin": "soft pairs, margin",
    "soft_apart": "soft pairs, apart",
}
COSTS = {
    "proxy_synthesis": "Proxy Synthesis, mixed-similarity path",
    "fused": "Proxy Synthesis, fused path",
}
Row = dict[str, str]


def values(found: list[Row], measure: str) -> Values:
    """A measure of these rows by seed, in percent."""
    return {int(row["seed"]): 100 * float(row[measure]) for row in found if row.get(measure)}


def photographs() -> str:
    """CUB: each loss with and without, every measure."""
    found = rows("study_cub200")
    body = []
    for loss in dict.fromkeys(row["loss"] for row in found):
        for kind, suffix in (("none", ""), ("proxy_synthesis", " + Proxy Synthesis")):
            here = [r for r in found if (r["loss"], r["regularizer"]) == (loss, kind)]
            cells = [spread(values(here, measure)) for measure in MEASURES]
            body.append([f"{LOSS_NAMES[loss]}{suffix}", str(len(here) or "–"), *cells])
        line = [_of(found, loss, "none"), _of(found, loss, "proxy_synthesis")]
        cells = [difference(*(values(each, name) for each in line)) or "–" for name in MEASURES]
        body.append(["difference", "", *cells])
    return table(["", "seeds", *MEASURES.values()], body)


def scale() -> str:
    """Photographs: Norm-softmax at two scales, with and without."""
    birds, groceries = rows("study_cub200"), rows("study_grocery")
    at_11 = [{**row, "loss": "norm_softmax, scale 11"} for row in rows("study_cub200_scale")]
    body = []
    for data, found in (("CUB-200-2011", birds + at_11), ("GroceryStore", groceries)):
        base = _of(found, "norm_softmax", "none")
        for value, loss in (("23", "norm_softmax"), ("11", "norm_softmax, scale 11")):
            plain, mixed = _of(found, loss, "none"), _of(found, loss, "proxy_synthesis")
            body.append([data, value, "without", str(len(plain)), *_pair(base, plain)])
            body.append([data, value, "Proxy Synthesis", str(len(mixed)), *_pair(plain, mixed)])
    head = ["", "scale", "", "seeds", "Recall@1", "difference", "MAP@R", "difference"]
    return table(head, body)


def few() -> str:
    """CUB: few seen classes, other ones for each seed."""
    found = rows("study_cub200_few")
    body = []
    for seen in sorted({row["classes"] for row in found}, key=int):
        plain, mixed = (
            [row for row in found if (row["classes"], row["regularizer"]) == (seen, kind)]
            for kind in ("none", "proxy_synthesis")
        )
        line = [seen, str(len(mixed)), spread(values(plain, "untrained_recall@1"))]
        for measure in ("recall@1", "map@r"):
            a, b = values(plain, measure), values(mixed, measure)
            line += [spread(a), difference(a, b) or "–"]
        body.append(line)
    with_ = "with Proxy Synthesis"
    head = ["seen classes", "seeds", "untrained Recall@1", "Recall@1", with_, "MAP@R", with_]
    return table(head, body)


def grocery() -> str:
    """GroceryStore: among photographs, and photographs against catalog pictures."""
    found = rows("study_grocery")
    body = []
    for loss in dict.fromkeys(row["loss"] for row in found):
        name, _, setting = loss.partition(", ")
        plain, mixed = _of(found, loss, "none"), _of(found, loss, "proxy_synthesis")
        line = [", ".join(filter(None, (LOSS_NAMES[name], setting))), str(len(mixed))]
        for measure in ("recall@1", "map@r", "catalogue_recall@1"):
            a, b = values(plain, measure), values(mixed, measure)
            line += [spread(a), difference(a, b) or "–"]
        body.append(line)
    head = ["", "seeds"]
    for measure in ("Recall@1", "MAP@R", "catalog Recall@1"):
        head += [measure, "with Proxy Synthesis"]
    return table(head, body)


def interpolation() -> str:
    """Few seen classes: the pretrained, the trained and the interpolated network."""
    body = []
    for name, data in (("cub200", "CUB-200-2011"), ("grocery", "GroceryStore")):
        found = rows(f"study_{name}_interpolate")
        for classes in sorted({row["classes"] for row in found}, key=int):
            trained: dict[str, list[Row]] = {"all": [], "held_out": []}
            for row in found:
                if row["classes"] == classes:
                    trained[row["trained"]].append(row)
            for measure, heading in (("recall@1", "Recall@1"), ("map@r", "MAP@R")):
                untrained = values(trained["all"], f"unseen_features_0_{measure}")
                others = [
                    values(trained["all"], measure),
                    *(
                        values(trained["all"], f"unseen_features_{a}_{measure}")
                        for a in ("1", "0.75", "0.5")
                    ),
                    {int(row["seed"]): 100 * _chosen(row, measure) for row in trained["held_out"]},
                ]
                cells = [difference(untrained, other) or "–" for other in others]
                seeds = str(len(untrained))
                body.append([data, classes, seeds, heading, spread(untrained), *cells])
    head = ["", "seen classes", "seeds", "", "untrained", "trained", "a = 1",
            "a = 0.75", "a = 0.5", "chosen"]  # fmt: skip
    return table(head, body)


def _chosen(row: Row, measure: str) -> float:
    """On unseen classes, what is best by MAP@R on the held-out ones, as `interpolate=auto`."""
    candidates = [f"features_{a}" for a in ("1", "0.75", "0.5", "0.25", "0")]
    best = max(candidates, key=lambda at: float(row[f"held_out_{at}_map@r"]))
    return float(row[f"unseen_{best}_{measure}"])


def losses() -> str:
    """Glyphs: each loss with and without, the difference with its interval."""
    return _against_none("study_glyph_losses", list(LOSS_NAMES), ["proxy_synthesis"])


def regularizers() -> str:
    """Glyphs: the four regularizers on two losses."""
    kinds = ["proxy_synthesis", "virtual_softmax", "input_mixup", "manifold_mixup"]
    return _against_none("study_glyph_regularizers", ["softmax", "norm_softmax"], kinds)


def _against_none(name: str, of: list[str], kinds: list[str]) -> str:
    found = rows(name)
    if not found:
        return "Not run yet."
    body = []
    for loss in of:
        plain = _of(found, loss, "none")
        cells = [spread(values(plain, measure)) for measure in ("recall@1", "map@r")]
        body.append([LOSS_NAMES[loss], str(len(plain) or "–"), cells[0], "", cells[1], ""])
        for kind in kinds:
            here = _of(found, loss, kind)
            if not here and kind == "virtual_softmax" and loss != "softmax":
                continue  # it is defined for the dot product alone
            body.append([f"+ {KINDS[kind]}", str(len(here) or "–"), *_pair(plain, here)])
    return table(["", "seeds", "Recall@1", "difference", "MAP@R", "difference"], body)


def classes() -> str:
    """Glyphs: the change by the number of seen classes and of pictures of a class."""
    found = rows("study_glyph_classes")
    if not found:
        return "Not run yet."
    body = []
    for faces in sorted({row["per_class"] for row in found}, key=int):
        for seen in sorted({row["classes"] for row in found}, key=int):
            here = [row for row in found if (row["classes"], row["per_class"]) == (seen, faces)]
            plain, mixed = (
                [row for row in here if row["regularizer"] == kind]
                for kind in ("none", "proxy_synthesis")
            )
            line = [seen, faces, str(len(mixed))]
            for measure in ("recall@1", "map@r"):
                a, b = values(plain, measure), values(mixed, measure)
                line += [spread(a), difference(a, b) or "–"]
            body.append(line)
    head = ["seen classes", "images per class", "seeds", "Recall@1", "change", "MAP@R", "change"]
    return table(head, body)


def ablation() -> str:
    """The paper's Table 1 at scale small: the contribution of each part of the method."""
    found = rows("paper_small/table1")
    if not found:
        return "Not run yet."
    cells = {(row["row"], row["column"]): row for row in found}
    body = []
    for name in dict.fromkeys(row["row"] for row in found):
        method, *used = (part.replace("original, synthetic", "both") for part in name.split(" | "))
        line = ["{}: embeddings: {}; proxies: {}".format(method, *used)]
        for measure in ("R@1", "MAP@R"):
            row = cells[name, measure]
            change = f"{float(row['change']):+.1f}" if row["change"] else ""
            change = f" (**{change}**)" if row["verdict"] else f" ({change})" if change else ""
            line.append(f"{float(row['mean']):.1f} ± {float(row['deviation']):.1f}{change}")
        line.append(cells[name, "R@1"]["paper"])
        body.append(line)
    return table(["Norm-softmax", "Recall@1", "MAP@R", "the paper's Recall@1, CARS196"], body)


def settings() -> str:
    """Glyphs, held-out seen classes: each setting against the paper's."""
    found = rows("study_glyph_settings")
    if not found:
        return "Not run yet."
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in found:
        key = tuple(row[name] for name in ("alpha", "mu", "per_pair", "duplicates"))
        groups.setdefault(key, []).append(row)
    paper = groups.get(("0.4", "1.0", "False", "keep"), [])
    body = []
    for (alpha, mu, per_pair, duplicates), here in groups.items():
        name = f"alpha {alpha}, mu {mu}" if alpha else "without Proxy Synthesis"
        name += ", per pair" if per_pair == "True" else ""
        name += ", duplicates merged" if duplicates == "merge" else ""
        same = " (the paper's)" if here is paper else ""
        body.append([name + same, str(len(here)), *_pair(paper, here)])
    head = ["", "folds", "Recall@1", "vs. the paper's values", "MAP@R", "vs. the paper's values"]
    return table(head, body)


def variants() -> str:
    """Glyphs, held-out seen classes: changes to the method against the paper's."""
    found = rows("study_glyph_variants")
    body = []
    for scale in sorted({row["scale"] for row in found}, key=float):
        of_scale = [row for row in found if row["scale"] == scale]
        body += [[f"{float(scale):g}", *cells] for cells in _against(of_scale, "proxy_synthesis")]
    base = "vs. Proxy Synthesis"
    head = ["scale", "", "folds", "Recall@1", base, "MAP@R", base]
    return table(head, body)


def anchor() -> str:
    """The same for Proxy-anchor, against the plain loss, which Proxy Synthesis lowers."""
    head = ["Proxy-anchor", "folds", "Recall@1", "vs. without", "MAP@R", "vs. without"]
    return table(head, _against(rows("study_glyph_anchor"), "none"))


def variant_cost() -> str:
    """The time of a step of every variant, relative to the plain loss."""
    body = [
        [LOSS_NAMES[row["loss"]], COSTS.get(row["regularizer"]) or KINDS[row["regularizer"]],
         f"{float(row['of_plain']):.1f}"]
        for row in rows("study_variant_cost")
        if row["regularizer"] != "none"
    ]  # fmt: skip
    return table(["loss", "variant", "time, relative to the plain loss"], body)


def gradients() -> str:
    """Glyphs: which proxies pull an embedding to its own proxy, and which push it away."""
    found = rows("study_glyph_gradients")
    body = []
    for loss in dict.fromkeys(row["loss"] for row in found):
        for kind, suffix in (("none", ""), ("proxy_synthesis", " + Proxy Synthesis")):
            here, cells = _of(found, loss, kind), []
            for name in ("own_similarity", "other_classes", "synthetic_classes"):
                numbers = [float(row[name]) for row in here]
                mean, deviation = statistics.fmean(numbers), statistics.stdev(numbers)
                cells.append(
                    f"{round(mean, 2) + 0.0:.2f} ± {deviation:.2f}" if any(numbers) else ""
                )
            body.append([f"{LOSS_NAMES[loss]}{suffix}", str(len(here)), *cells])
    head = ["", "seeds", "s(x, p+)", "push of other classes", "push of synthetic classes"]
    return table(head, body)


def _against(found: list[Row], base: str) -> list[list[str]]:
    baseline = [row for row in found if row["regularizer"] == base]
    body = []
    for kind in dict.fromkeys(row["regularizer"] for row in found):
        here = [row for row in found if row["regularizer"] == kind]
        body.append([KINDS[kind] or "without", str(len(here)), *_pair(baseline, here)])
    return body


def more() -> str:
    """Glyphs, held-out seen classes: three synthetics per embedding, few and many classes."""
    found = rows("study_glyph_more")
    if not found:
        return "Not run yet."
    body = []
    for seen in sorted({row["classes"] for row in found}, key=int):
        for mu in sorted({row["mu"] for row in found}, key=float):
            paper, here = (
                [row for row in found if (row["classes"], row["mu"]) == (seen, of)]
                for of in ("1.0", mu)
            )
            body.append([seen, f"{float(mu):g}", str(len(here)), *_pair(paper, here)])
    head = ["seen classes", "mu", "folds", "Recall@1", "vs. mu 1", "MAP@R", "vs. mu 1"]
    return table(head, body)


def preset() -> str:
    """Both datasets, unseen classes: the setting chosen on seen ones against the paper's."""
    body = []
    for name, dataset in (("glyph", "glyphs"), ("cub200", "CUB-200-2011")):
        found = rows(f"study_{name}_preset")
        paper = [row for row in found if row["regularizer"] == "proxy_synthesis"]
        for kind, label in (("none", "without"), ("proxy_synthesis", "mu 1"), ("mu_3", "mu 3")):
            here = [row for row in found if row["regularizer"] == kind]
            cells = _pair(paper, here) if here else ["–"] * 4
            body.append([dataset, label, str(len(here) or "–"), *cells])
    head = ["", "", "seeds", "Recall@1", "vs. mu 1", "MAP@R", "vs. mu 1"]
    return table(head, body)


def _of(found: list[Row], loss: str, kind: str) -> list[Row]:
    return [row for row in found if (row["loss"], row["regularizer"]) == (loss, kind)]


def _pair(base: list[Row], here: list[Row]) -> list[str]:
    """Two measures, each with its difference from the base."""
    cells = []
    for measure in ("recall@1", "map@r"):
        mine = values(here, measure)
        same = base is here or base == here
        cells += [spread(mine), "" if same else difference(values(base, measure), mine) or "–"]
    return cells


TABLES = {
    "photographs": photographs,
    "scale": scale,
    "few": few,
    "grocery": grocery,
    "interpolation": interpolation,
    "losses": losses,
    "tuned": tuned,
    "classes": classes,
    "regularizers": regularizers,
    "ablation": ablation,
    "settings": settings,
    "preset": preset,
    "variants": variants,
    "anchor": anchor,
    "gradients": gradients,
    "variant_cost": variant_cost,
    "more": more,
}


if __name__ == "__main__":
    fill(PAGE, TABLES)
