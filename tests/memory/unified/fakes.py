"""As much of RMM, CuPy, torch and Numba as takes an allocator, for tests without a GPU."""

from contextlib import contextmanager
from types import SimpleNamespace

GB = 10**9


def recorder(name):
    def make(*arguments, **named):
        return SimpleNamespace(kind=name, arguments=arguments, allocate=None, deallocate=None, **named)

    return make


FAKE = SimpleNamespace(
    **{
        name: recorder(name)
        for name in (
            "ManagedMemoryResource",
            "PrefetchResourceAdaptor",
            "PoolMemoryResource",
            "LimitingResourceAdaptor",
            "PinnedHostMemoryResource",
            "CallbackMemoryResource",
            "FailureCallbackResourceAdaptor",
            "CudaMemoryResource",
        )
    }
)


class FakeCupy:
    """As much of CuPy as takes an allocator."""

    def __init__(self):
        self.allocator = before = object()
        self.cuda = SimpleNamespace(
            get_allocator=lambda: self.allocator,
            set_allocator=lambda allocator: setattr(self, "allocator", allocator),
            get_current_stream=lambda: "stream",
            MemoryPointer=lambda memory, offset: memory,
            UnownedMemory=lambda pointer, size, owner, device: SimpleNamespace(pointer=pointer, size=size, owner=owner),
            Device=lambda: SimpleNamespace(id=0),
        )
        self.before = before

    def get_default_memory_pool(self):
        return SimpleNamespace(total_bytes=lambda: 0)


class FakeTorch:
    """As much of torch as takes an allocator: once, before its first use."""

    def __init__(self):
        self.initialized, self.backend, self.in_pool = False, "native", False
        self.cuda = SimpleNamespace(
            is_initialized=lambda: self.initialized,
            memory=SimpleNamespace(change_current_allocator=self.change, get_allocator_backend=lambda: self.backend),
            memory_reserved=lambda: 0,
            MemPool=lambda allocator: allocator,
            use_mem_pool=self.use_mem_pool,
        )

    def change(self, allocator):
        assert not self.initialized
        self.backend = "pluggable"

    @contextmanager
    def use_mem_pool(self, pool):
        self.in_pool = True
        yield
        self.in_pool = False


class FakeStatistics:
    """RMM's adaptor that counts."""

    kind = "Statistics"

    def __init__(self, top):
        self.top, self.allocation_counts = top, SimpleNamespace(current_bytes=0, peak_bytes=50)


class FakeRmm:
    """As much of RMM as `unify` asks for; `current` is its current resource, `level` what it writes of."""

    level_enum = SimpleNamespace(info="info", critical="critical")

    def __init__(self):
        self.current, self.level = "first", self.level_enum.info
        pool = FAKE.PoolMemoryResource
        self.mr = SimpleNamespace(
            **vars(FAKE) | {"PoolMemoryResource": lambda *given, **named: pool(*given, pool_size=lambda: 100, **named)},
            StatisticsResourceAdaptor=FakeStatistics,
            get_current_device_resource=lambda: self.current,
            set_current_device_resource=lambda resource: setattr(self, "current", resource),
        )

    def get_logging_level(self):
        return self.level

    def set_logging_level(self, level):
        self.level = level

    def DeviceBuffer(self, **named):  # noqa: N802 - RMM's name
        return SimpleNamespace(ptr=4096, **named)
