import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import BudgetError, UnitError
from forebay.units import Budget, seconds_to_text, to_bytes, to_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8GB", 8 * 10**9),
        ("8 gb", 8 * 10**9),
        ("1.13GB", 1_130_000_000),
        ("1.5GiB", 3 * 2**29),
        ("512MiB", 2**29),
        ("64", 64),
        ("1e3kB", 10**6),
        ("1_000B", 1000),
        (4096, 4096),
        (1e9, 10**9),
        (0, 0),
    ],
)
def test_amounts_are_read_as_people_write_them(text, expected):
    assert to_bytes(text) == expected


@pytest.mark.parametrize("bad", ["", "GB", "8 apples", "8GBs", "-1GB", -1, float("nan"), float("inf"), None, True, [8]])
def test_what_is_not_an_amount_is_refused_with_an_example(bad):
    with pytest.raises(UnitError, match=r"8GB|not negative"):
        to_bytes(bad)


@given(st.integers(0, 10**17))
def test_text_and_back_keeps_three_digits(count):
    assert to_bytes(to_text(count)) == pytest.approx(count, rel=0.00501)


def test_text_never_shows_a_thousand_of_a_unit():
    assert to_text(999_999) == "1MB"
    assert seconds_to_text(0.9999) == "1 s"


def test_a_bare_amount_is_the_first_tier():
    assert Budget.of("4GB") == Budget(device="4GB")
    assert Budget.of(4096, first="host") == Budget(host=4096)
    assert Budget.of(Budget(disk="1TB")) == Budget(disk="1TB")


def test_a_budget_knows_its_tiers():
    budget = Budget(device="8GB", disk="1TB")
    assert budget.tiers == ("device", "disk")
    assert budget["disk"] == 10**12
    assert budget.with_tier("disk", None).tiers == ("device",)
    with pytest.raises(BudgetError, match="no tier 'host'"):
        budget["host"]
    with pytest.raises(BudgetError, match="at least one tier"):
        Budget()
