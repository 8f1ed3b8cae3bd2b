"""Clusters of our own: strangers get nothing from them, and workers that are lost are replaced."""

import asyncio
import logging
import os
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
from tests.faults import figures

from forebay.errors import ForebayError
from forebay.wave.job.tables import RunTable

distributed = pytest.importorskip("distributed")
psutil = pytest.importorskip("psutil")

from forebay.dask import clusters  # noqa: E402 - Dask is optional
from forebay.wave.job import cluster  # noqa: E402


async def identity(address, **how):
    """Ask a scheduler or worker who it is, as a stranger; whoever hears that may have anything run there."""
    comm = await asyncio.wait_for(distributed.comm.connect(address, timeout=5, **how), 5)
    try:
        await comm.write({"op": "identity"})
        return await asyncio.wait_for(comm.read(), 5)
    finally:
        comm.abort()


def listening(processes):
    """List the ports on which processes listen."""
    connections = [connection for process in processes for connection in process.net_connections("inet")]
    return {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}


def answer(port):
    """Ask a port for a page of the dashboard, as a stranger would; return what it says."""
    plain = socket.create_connection(("127.0.0.1", port), 5)
    with plain:
        plain.sendall(b"GET /info/main/workers.html HTTP/1.0\r\n\r\n")
        try:
            return plain.recv(1000)
        except OSError:
            return b""


def loud():
    """Tell whether Dask would show its own errors, as of a cluster that is ended by a signal."""
    return any(handler.level <= logging.ERROR for handler in logging.getLogger("distributed").handlers)


def test_strangers_run_nothing_in_the_workers_of_a_job(tmp_path):
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    with distributed.LocalCluster(n_workers=0, processes=False, protocol="tcp", dashboard_address=None) as careless:
        assert asyncio.run(identity(careless.scheduler_address))["type"] == "Scheduler"
    before = listening([psutil.Process()])
    with cluster.local(RunTable(workers=1), "cpu", tmp_path) as shots:
        assert shots.client.submit(sum, [1, 2]).result(60) == 3
        ((worker, about),) = shots.client.scheduler_info()["workers"].items()
        assert Path(about["local_directory"]).is_relative_to(tmp_path)
        assert not loud() and not shots.client.submit(loud).result(60)
        for address in (shots.client.scheduler.address, worker):
            assert address.startswith("tls://127.0.0.1:")
            for scheme, how in (("tls", {"ssl_context": anybody}), ("tcp", {})):
                with pytest.raises((OSError, TimeoutError)):
                    asyncio.run(identity(f"{scheme}://{address.partition('://')[2]}", **how))
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        ports = listening(processes) - before
        assert len(ports) >= 3 and 8787 not in ports  # of scheduler, nanny and worker; Dask's own is for others
        for port in ports:
            said = answer(port)
            assert b" 200 " not in said and b"worker" not in said, (port, said)
        assert not any("BEGIN" in text for process in processes[1:] for text in process.cmdline())


@pytest.mark.parametrize("missing", ["cryptography", "both"])
def test_credentials_come_from_what_there_is(monkeypatch, missing):
    def without(**options):
        raise ImportError("no cryptography")

    monkeypatch.setattr(clusters.Security, "temporary", without)
    if missing == "both":
        monkeypatch.setattr(clusters.shutil, "which", lambda name: None)
        with pytest.raises(ForebayError, match="needs cryptography: install Forebay with its extra dask"):
            clusters.temporary_credentials()
        return
    if clusters.shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    one, other = clusters.temporary_credentials(), clusters.temporary_credentials()
    assert one.require_encryption and one.tls_scheduler_key != other.tls_scheduler_key
    assert one.get_connection_args("worker")["ssl_context"].verify_mode == ssl.CERT_REQUIRED


def test_a_cluster_whose_workers_end_as_they_start_is_started_again():
    tried = []

    def start(security):
        tried.append(security)
        if len(tried) < 3:
            raise RuntimeError("Nanny failed to start.")
        return distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None, security=security)

    with clusters.private_cluster(start) as client:
        assert client.submit(sum, [1, 2]).result(60) == 3
    with pytest.raises(ForebayError, match=r"ended as they started, 5 times .*start fewer"):
        clusters._started(lambda security: (_ for _ in ()).throw(RuntimeError("Nanny failed to start.")), None)


class Comm:
    """A client whose workers are lost as it is told."""

    def __init__(self, *rounds):
        self.rounds, self.waited = list(rounds), 0

    def run(self, question, *arguments, on_error):
        assert on_error == "return"
        return self.rounds.pop(0)

    def wait_for_workers(self, count, timeout):
        self.waited += 1


def test_workers_lost_in_a_broadcast_are_left_out_and_their_successors_asked():
    lost = distributed.comm.CommClosedError("lost")
    assert clusters.ask_workers(Comm({"a": lost, "b": 1}), sum) == {"b": 1}
    client = Comm({"a": lost, "b": lost}, {"c": lost}, {"d": 3})
    assert clusters.ask_workers(client, sum) == {"d": 3} and client.waited == 2
    with pytest.raises(ZeroDivisionError):
        clusters.ask_workers(Comm({"a": lost, "b": ZeroDivisionError()}), sum)
    with pytest.raises(distributed.comm.CommClosedError):
        clusters.ask_workers(Comm(*[{"a": lost}] * clusters.TRIES), sum)
    assert clusters.ask_workers(Comm({}), sum) == {}


def _once(path):
    """Kill the worker that is asked first."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "here"
    return os.kill(os.getpid(), 9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_workers_killed_at_start_up_and_in_a_broadcast_are_replaced(tmp_path, seed):
    def kill():
        """Kill the first process that is there to become a worker, a moment later."""
        while True:
            for process in psutil.Process().children():
                if "spawn_main" in " ".join(process.cmdline()):
                    time.sleep(0.3 * seed)
                    process.kill()
                    return
            time.sleep(0.01)

    begun = time.perf_counter()
    killer = threading.Thread(target=kill)
    killer.start()
    with cluster.local(RunTable(workers=2), "cpu", tmp_path) as shots:
        killer.join()
        answers = clusters.ask_workers(shots.client, _once, str(tmp_path / "killed"))
        assert set(answers.values()) == {"here"}
        assert shots.client.submit(sum, [1, 2]).result(60) == 3
    name = f"Dask workers killed as they start and in a broadcast, seed {seed}"
    figures.record("faults", name, {"kills": 2, "wrong": 0}, time.perf_counter() - begun)
