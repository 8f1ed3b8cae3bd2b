"""Clusters of this machine that nobody else can use, and questions to workers of which some may be lost."""

import logging
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dask.config
import distributed
from distributed.security import Security

from forebay.errors import ForebayError, needs

TRIES = 5
"""How often a cluster is started, or a question asked, when workers are lost meanwhile."""
PATIENCE = "30s"
"""How long the successors of lost workers may take."""
CONFIGURATION = {
    # Workers are started afresh, not forked: the threads of a process that has computed do not survive a fork.
    "distributed.worker.multiprocessing-method": "spawn",
    # No pages: neither those of the dashboard nor those that tell of the cluster to whoever asks.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
DAYS = "30"
SHOWN = {
    "distributed.worker.memory": logging.WARNING,
    "distributed.nanny.memory": logging.WARNING,
    "distributed.nanny": logging.WARNING,
    "distributed.scheduler": logging.WARNING,
}
"""What Dask says of memory that runs short, and of workers that are lost and replaced, from which level on.

What befalls a task is told by its exception, and of workers that are ended Dask shows tracebacks: only what is critical
is shown of the rest.
"""


class WithoutNoise(logging.Filter):
    """Lets pass what users of a cluster should hear of it, see `SHOWN`."""

    ending = False
    """whether the cluster is being closed, and its workers are meant to end"""

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is shown."""
        told = not record.exc_info and not self.ending
        return record.levelno >= (SHOWN.get(record.name, logging.CRITICAL) if told else logging.CRITICAL)


class QuietWorker(distributed.WorkerPlugin):  # type: ignore[misc]
    """Has a worker show what matters, and nothing else."""

    name = "forebay-quiet"

    def setup(self, worker: Any) -> None:
        """Filter what the process of a worker shows."""
        for handler in _handlers():
            handler.addFilter(WithoutNoise())


@contextmanager
def quiet() -> Iterator[WithoutNoise]:
    """Filter what Dask shows in this process."""
    noise, handlers = WithoutNoise(), _handlers()
    for handler in handlers:
        handler.addFilter(noise)
    try:
        yield noise
    finally:
        for handler in handlers:
            handler.removeFilter(noise)


def _handlers() -> list[logging.Handler]:
    handlers = logging.getLogger("distributed").handlers
    return [handler for handler in handlers if isinstance(handler, logging.StreamHandler)]


@contextmanager
def private_cluster(start: Callable[[Security], Any]) -> Iterator[distributed.Client]:
    """Start a cluster, and yield its client; only those who have its certificate can talk to its processes.

    Parameters
    ----------
    start
        ``start(security)`` returns the cluster; it is called again where workers end as they start.
    """
    with ExitStack() as opened:
        opened.enter_context(dask.config.set(CONFIGURATION))
        noise = opened.enter_context(quiet())
        cluster = opened.enter_context(_started(start, temporary_credentials()))
        client = opened.enter_context(distributed.Client(cluster))
        _quieten(client)
        opened.callback(setattr, noise, "ending", True)
        yield client


def _quieten(client: distributed.Client) -> None:
    """Have workers show what matters, and nothing else; the scheduler tells those that come later."""
    for _ in range(TRIES):
        try:
            client.register_plugin(QuietWorker())
        except OSError:  # a worker was lost before it had answered
            continue
        return


def _started(start: Callable[[Security], Any], security: Security) -> Any:
    for _ in range(TRIES - 1):
        try:
            return start(security)
        except (OSError, RuntimeError):  # what Dask says of a worker that ended before it was there
            continue
    try:
        return start(security)
    except (OSError, RuntimeError) as error:
        raise ForebayError(
            f"the workers ended as they started, {TRIES} times ({error}): start fewer of them, or free some memory"
        ) from error


def temporary_credentials() -> Security:
    """Make a key and a certificate for one cluster, which are nowhere but in the memory of its processes."""
    try:
        return Security.temporary()
    except ImportError:
        if (openssl := shutil.which("openssl")) is None:
            raise ForebayError(needs("a cluster that nobody else can use", "cryptography", "dask")) from None
        key, certificate = _signed_by(openssl)
    roles = ("client", "scheduler", "worker")
    keys = {f"tls_{role}_key": key for role in roles} | {f"tls_{role}_cert": certificate for role in roles}
    return Security(require_encryption=True, tls_ca_file=certificate, **keys)


def _signed_by(openssl: str) -> tuple[str, str]:
    """Have OpenSSL make what the library `cryptography` would."""
    with tempfile.TemporaryDirectory(prefix="forebay-") as folder:  # its owner's alone
        key, certificate = Path(folder) / "key.pem", Path(folder) / "certificate.pem"
        command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-sha256", "-days", DAYS]
        command += ["-subj", "/CN=forebay", "-keyout", str(key), "-out", str(certificate)]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            raise ForebayError(f"openssl makes no certificate: {made.stderr.strip()}. Install cryptography")
        return key.read_text(), certificate.read_text()


def ask_workers(client: distributed.Client, question: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Call a function on every worker, and return the answers; those of workers lost meanwhile are left out.

    Where all were lost, their successors are asked.
    """
    lost: dict[str, Any] = {}
    for _ in range(TRIES):
        answers = client.run(question, *arguments, on_error="return")
        lost = {name: answer for name, answer in answers.items() if isinstance(answer, OSError)}
        for answer in answers.values():
            if isinstance(answer, BaseException) and not isinstance(answer, OSError):
                raise answer
        if len(lost) < len(answers) or not answers:
            return {name: answer for name, answer in answers.items() if name not in lost}
        client.wait_for_workers(1, timeout=PATIENCE)
    raise next(iter(lost.values()))
