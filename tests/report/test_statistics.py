"""Intervals against scipy and printed tables."""

import math

import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from proxysynth.report.statistics import paired_interval, t_quantile, unpaired_interval


@pytest.mark.parametrize(("freedom", "table"), [(1, 12.706), (2, 4.303), (4, 2.776), (30, 2.042)])
def test_t_quantile_matches_printed_table(freedom, table):
    assert t_quantile(freedom) == pytest.approx(table, abs=5e-4)


@given(st.floats(0.5, 400), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_t_quantile_matches_scipy(freedom, level):
    want = stats.t.ppf((1 + level) / 2, freedom)
    assert t_quantile(freedom, level) == pytest.approx(want, rel=1e-8)


values = st.lists(st.integers(0, 1000).map(lambda n: n / 1000), min_size=2, max_size=8)


@pytest.mark.filterwarnings("ignore:Precision loss")  # scipy's, where one list does not vary
@settings(deadline=None)  # the first call of scipy is slow
@given(values, values)
def test_unpaired_interval_matches_scipy_welch(a, b):
    low, high = unpaired_interval(a, b)
    if len(set(a)) == len(set(b)) == 1:  # nothing varies: scipy has no answer
        assert low == high
        return
    want = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert (low, high) == pytest.approx((want.low, want.high), rel=1e-6, abs=1e-9)


def test_paired_interval_matches_hand_computed_values():
    # differences 5, 3, 4: mean 4, deviation 1; t of 2 degrees is 4.3027
    low, high = paired_interval([90, 92, 94], [95, 95, 98])
    half = 4.302653 / math.sqrt(3)
    assert (low, high) == pytest.approx((4 - half, 4 + half), abs=1e-5)


def test_constant_values_have_zero_width_interval():
    assert unpaired_interval([1.0, 1.0], [3.0, 3.0]) == (2.0, 2.0)
    assert paired_interval([1.0, 2.0], [3.0, 4.0]) == (2.0, 2.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: paired_interval([1, 2], [1, 2, 3]),
        lambda: paired_interval([1], [2]),
        lambda: unpaired_interval([1], [2, 3]),
    ],
)
def test_too_few_values_are_rejected(call):
    with pytest.raises(ValueError, match="argument 2|two data points"):
        call()
