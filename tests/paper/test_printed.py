"""The printed numbers agree with each other, or a note says where they do not."""

from __future__ import annotations

from statistics import fmean

import pytest

from proxysynth.paper.printed import notes_of, number, printed, rows_of

BOOSTS = {"average": fmean, "minimum": min, "maximum": max}
NAMES = {
    "table1": 5, "table2": 10, "table3": 16, "table4": 108, "table5": 18, "table6": 64,
    "tableA": 6, "tableB": 144, "tableC": 64, "tableD": 20, "tableE": 48, "boosts": 48,
    "conventional": 412, "mlrc": 216, "released": 12,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_printed_file_is_complete(name: str) -> None:
    assert len(printed(name)) == NAMES[name]
    field = "loss_ms" if name == "tableA" else "value"
    for row in printed(name):
        assert row[field] == "" or -5 <= float(row[field]) <= 100
        assert None not in row.values()
        assert "note" in row


def test_table_6_matches_tables_f_h_j_l() -> None:
    for row in printed("table6"):
        keys = {key: row[key] for key in ("benchmark", "loss", "regularizer", "metric")}
        assert number("conventional", **keys) == float(row["value"]), keys
        if row["change"]:
            plain = number("conventional", **{**keys, "regularizer": "none"})
            assert float(row["value"]) - plain == pytest.approx(float(row["change"]), abs=1e-6)


def test_table_4_matches_the_concatenated_half_of_g_i_k() -> None:
    for row in printed("table4"):
        keys = {k: row[k] for k in ("benchmark", "loss", "regularizer", "embedding", "metric")}
        assert number("mlrc", **keys) == float(row["value"]), keys
        assert number("mlrc", "ci95", **keys) == float(row["ci95"]), keys


def test_printed_boosts_follow_from_the_printed_recalls() -> None:
    losses = {row["loss"] for row in printed("conventional") if row["loss"]}
    assert len(losses) == 8
    for row in printed("boosts"):
        gains = []
        for loss in losses:
            keys = {"benchmark": row["benchmark"], "metric": row["metric"], "loss": loss}
            a = number("conventional", regularizer="none", **keys)
            b = number("conventional", regularizer="proxy_synthesis", **keys)
            gains.append(b - a)
        assert BOOSTS[row["boost"]](gains) == pytest.approx(float(row["value"]), abs=0.0501), row


def test_differences_of_tables_5_and_6_have_notes() -> None:
    differing = set()
    for row in printed("table5"):
        if row["regularizer"] in ("none", "proxy_synthesis"):
            keys = {key: row[key] for key in ("benchmark", "loss", "regularizer")}
            if number("table6", **keys) != float(row["value"]):
                differing.add((row["loss"], row["benchmark"], row["regularizer"]))
                assert row["note"]
            else:
                assert not row["note"]
    assert differing == {("norm_softmax", "sop", "none"), ("softmax", "sop", "proxy_synthesis")}


def test_table_5_uses_the_best_alpha_of_table_e() -> None:
    for row in printed("table5"):
        if "mixup" in row["regularizer"]:
            keys = {key: row[key] for key in ("benchmark", "loss", "regularizer")}
            best = max(float(other["value"]) for other in rows_of("tableE", **keys))
            assert best == float(row["value"]), keys


def test_table_d_uses_the_best_cell_of_table_c() -> None:
    for name in ("cifar10", "cifar100", "svhn", "tiny_imagenet"):
        best = max(float(row["value"]) for row in rows_of("tableC", benchmark=name))
        assert best == number("tableD", benchmark=name, regularizer="proxy_synthesis")


def test_ablations_share_their_best_run() -> None:
    best = number("table1", model="PS")
    assert best == number("table2", generation="alpha", parameter="0.4")
    keys = {"benchmark": "cars196", "loss": "norm_softmax", "regularizer": "proxy_synthesis"}
    assert best == number("table6", **keys)
    assert number("table1", model="M1") == number("table6", **{**keys, "regularizer": "none"})


def test_misprint_in_table_k_has_a_note() -> None:
    keys = {"benchmark": "sop", "embedding": "separated", "regularizer": "proxy_synthesis"}
    values = {r["loss"]: float(r["value"]) for r in rows_of("mlrc", metric="map@r", **keys)}
    odd = max(values, key=lambda loss: values[loss])
    assert odd == "proxy_nca"
    assert notes_of("mlrc", loss=odd, metric="map@r", **keys)


def test_number_requires_keys_of_a_single_row() -> None:
    assert number("table1", model="M9") is None
    with pytest.raises(ValueError, match="table6"):
        number("table6", loss="softmax")


def test_notes_name_their_tables() -> None:
    """A file may stand under several tables, so that no note can say "here"."""
    for name in NAMES:
        assert not any(" here" in note for note in notes_of(name)), name
    notes = " ".join((*notes_of("conventional"), *notes_of("table5")))
    assert notes.count("in Tables 6 and J") == 4
    assert notes.count("in Table 5") == 4
