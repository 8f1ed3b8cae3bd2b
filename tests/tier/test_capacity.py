import mmap
from pathlib import Path

import pytest

from forebay.cuda.available import gpu_count, why_not
from forebay.errors import BudgetError
from forebay.tier import capacity
from forebay.tier.capacity import (
    Capacity,
    capacities,
    check_free,
    check_spills,
    disk_capacity,
    host_capacity,
    less_of_host,
)
from forebay.units import Budget

GB = 10**9


@pytest.fixture
def machine(tmp_path):
    """A kernel's files: 1024000 kB of memory, 512000 kB of it available, and control groups as a test lays them out."""
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 1024000 kB\nMemFree: 1 kB\nMemAvailable: 512000 kB\nOdd: 1: 2 kB\n")

    def lay_out(membership, groups):
        (proc / "self/cgroup").write_text(membership)
        for group, files in groups.items():
            (cgroups / group).mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (cgroups / group / name).write_text(text)
        return host_capacity(proc, cgroups)

    return lay_out


WHOLE = Capacity(1024000 * 1024, 512000 * 1024)


def test_without_limits_the_machine_counts(machine):
    assert machine("0::/\n", {}) == WHOLE
    assert machine("0::/job\n", {"job": {"memory.max": "max\n", "memory.current": "5\n"}}) == WHOLE


def test_a_limit_of_version_2_counts_without_its_droppable_pages(machine):
    files = {"memory.max": "1000000\n", "memory.current": "600000\n", "memory.stat": "anon 1\ninactive_file 200000\n"}
    assert machine("0::/job\n", {"job": files}) == Capacity(1_000_000, 600_000)


def test_no_group_uses_less_than_nothing(machine):
    files = {"memory.max": "1000000\n", "memory.current": "100000\n", "memory.stat": "inactive_file 200000\n"}
    assert machine("0::/job\n", {"job": files}) == Capacity(1_000_000, 1_000_000)


def test_the_tightest_group_above_counts(machine):
    groups = {
        "a": {"memory.max": "500000\n", "memory.current": "450000\n"},
        "a/b": {"memory.max": "900000\n", "memory.current": "100000\n"},
    }
    assert machine("0::/a/b\n", groups) == Capacity(500_000, 50_000)


def test_a_limit_of_version_1(machine):
    files = {"memory.limit_in_bytes": "1000000\n", "memory.usage_in_bytes": "300000\n"}
    membership = "5:cpu:/job\n4:memory:/job\n"
    assert machine(membership, {"memory/job": files}) == Capacity(1_000_000, 700_000)


def test_inside_a_container_the_path_of_the_host_is_not_there(machine):
    files = {"memory.limit_in_bytes": "1000000\n", "memory.usage_in_bytes": "1200000\n"}
    assert machine("4:memory:/docker/abc\n", {"memory": files}) == Capacity(1_000_000, 0)


def test_a_limit_beyond_the_machine_does_not_count(machine):
    files = {"memory.limit_in_bytes": "9223372036854771712\n", "memory.usage_in_bytes": "3\n"}
    assert machine("4:memory:/\n", {"memory": files}) == WHOLE


@pytest.mark.parametrize(
    ("limit", "free"), [("500000000", 500_000_000 - 25_600_000 - 64 * 2**20), ("1", 0), ("unlimited", None)]
)
def test_a_limit_on_addresses_counts(machine, tmp_path, monkeypatch, limit, free):
    monkeypatch.setattr(mmap, "PAGESIZE", 4096)
    (tmp_path / "proc/self/limits").write_text(
        f"Limit  Soft Limit  Hard Limit  Units\nMax address space  {limit}  unlimited  bytes\n"
    )
    (tmp_path / "proc/self/statm").write_text("6250 100 9 9 9 9 9\n")
    found = machine("0::/\n", {})
    assert found == (WHOLE if free is None else Capacity(int(limit), free))


def test_this_machine(tmp_path):
    found = capacities(tmp_path)
    assert 0 < found["host"].free <= found["host"].total
    assert 0 < found["disk"].free <= found["disk"].total == disk_capacity(tmp_path).total
    assert (found["device"] is None) == (gpu_count() == 0)


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() == 0, reason=why_not())
def test_a_device(tmp_path):
    device = capacities(tmp_path)["device"]
    assert GB < device.free <= device.total


def test_what_a_directory_that_is_memory_holds_is_what_is_left_beside_the_rest(tmp_path, monkeypatch):
    monkeypatch.setattr(capacity, "in_memory", lambda directory: True)
    monkeypatch.setattr(capacity, "host_capacity", lambda: Capacity(GB, 500_000))
    check_spills(tmp_path, 400_000, beside=100_000)
    with pytest.raises(BudgetError, match=r"only 400kB are free .* at most 400000 bytes"):
        check_spills(tmp_path, 400_001, beside=100_000)
    with pytest.raises(BudgetError, match=r"at most 0 bytes"):
        check_spills(tmp_path, 1, beside=600_000)


def test_what_is_more_than_is_free_is_refused(monkeypatch):
    monkeypatch.setattr(capacity, "free_host_bytes", lambda: 1000)
    check_free(1000, "it")
    with pytest.raises(BudgetError, match="it takes"):
        check_free(1001, "it")
    monkeypatch.setattr(capacity, "free_host_bytes", lambda: None)
    check_free(10**18, "it")


def test_a_group_may_have_colons_in_its_name(machine):
    files = {"memory.max": "1000000\n", "memory.current": "400000\n"}
    assert machine("0::/a:b:c\n", {"a:b:c": files}) == Capacity(1_000_000, 600_000)


def test_a_budget_that_is_just_there_is_taken_as_it_is():
    budget = Budget(host=1000)
    assert less_of_host(budget, 1000) == (budget, "")
    assert less_of_host(budget, 999)[0] == Budget(host=999)


def test_what_is_free_is_known_where_the_system_tells():
    if not Path("/proc/meminfo").exists():
        assert capacity.free_host_bytes() is None
    else:
        assert 0 < capacity.free_host_bytes() <= host_capacity().total
    assert capacity.PIECE == 2 * 1024 * 1024
