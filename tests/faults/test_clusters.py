"""Clusters of our own: strangers get nothing from them, and workers that are lost are replaced."""

import asyncio
import io
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
from forebay.wave.job.shots import cluster  # noqa: E402


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


SAID = {
    ("distributed.worker.memory", logging.WARNING, False): True,
    ("distributed.nanny.memory", logging.WARNING, False): True,
    ("distributed.nanny", logging.WARNING, False): True,
    ("distributed.scheduler", logging.WARNING, False): True,
    ("distributed.nanny", logging.INFO, False): False,
    ("distributed.scheduler", logging.ERROR, True): False,
    ("distributed.worker", logging.ERROR, True): False,
    ("distributed.core", logging.ERROR, False): False,
    ("distributed.comm.tcp", logging.WARNING, False): False,
    ("distributed.worker", logging.CRITICAL, True): True,
}
"""What Dask says, of which level, with a traceback or not: and whether it is shown."""


def shown():
    """Tell what of all that Dask would show."""
    (handler,) = logging.getLogger("distributed").handlers
    seen = {}
    for name, level, traceback in SAID:
        about = (ValueError, ValueError(), None) if traceback else None
        record = logging.LogRecord(name, level, "", 0, "", (), about)
        seen[name, level, traceback] = level >= handler.level and bool(handler.filter(record))
    return seen


def test_strangers_run_nothing_in_the_workers_of_a_job(tmp_path, monkeypatch):
    # Where others have handlers, as pytest has, Dask makes none.
    monkeypatch.setattr(logging.getLogger("distributed"), "handlers", [logging.StreamHandler(io.StringIO())])
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    with distributed.LocalCluster(n_workers=0, processes=False, protocol="tcp", dashboard_address=None) as careless:
        assert asyncio.run(identity(careless.scheduler_address))["type"] == "Scheduler"
    before = listening([psutil.Process()])
    with cluster.local(RunTable(workers=1), "cpu", tmp_path) as shots:
        assert shots.client.submit(sum, [1, 2]).result(60) == 3
        ((worker, about),) = shots.client.scheduler_info()["workers"].items()
        assert Path(about["local_directory"]).is_relative_to(tmp_path)
        assert shown() == SAID and shots.client.submit(shown).result(60) == SAID
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
    assert shown()["distributed.worker", logging.ERROR, True]  # as before


def test_of_workers_that_are_meant_to_end_nothing_is_told():
    noise, said = clusters.WithoutNoise(), logging.LogRecord("distributed.nanny", logging.WARNING, "", 0, "", (), None)
    assert noise.filter(said)
    noise.ending = True
    assert not noise.filter(said)


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


def test_shots_under_way_are_marked_when_the_run_is_ended(tmp_path, monkeypatch):
    told = []

    class Client:
        def __init__(self):
            self.hear = None

        def subscribe_topic(self, topic, hear):
            self.hear = hear

        def unsubscribe_topic(self, topic):
            self.hear = None

        def submit(self, *about, **how):
            return object()

    client = Client()

    def ended(futures):
        client.hear((0, (1, 7)))
        raise SystemExit(143)

    class Bars:
        def steps(self, shot, done):
            told.append((shot, done))

    monkeypatch.setattr(cluster, "ask_workers", lambda *about: {"one": True})
    monkeypatch.setattr(cluster.distributed, "as_completed", ended)
    workspace = cluster.Workspace(tmp_path, "0" * 16)
    monkeypatch.setattr(cluster.Workspace, "plan", lambda self: "a plan")
    monkeypatch.setattr(cluster.Workspace, "finished", lambda self: {0})
    workspace.drafts.mkdir()
    (tmp_path / "shots").mkdir()
    with pytest.raises(SystemExit):
        cluster.ShotCluster(client, RunTable(workers=1), 1).shots(workspace, [1, 2], None, Bars())
    assert "SystemExit: 143" in (tmp_path / "shots" / "00001.error").read_text() and told == [(1, 7)]
    assert [path.name for path in (tmp_path / "shots").iterdir()] == ["00001.error"]


@pytest.mark.parametrize("times", [1, 100])
def test_a_cluster_whose_worker_is_lost_as_it_is_told_what_to_show_starts_all_the_same(times, monkeypatch):
    register, lost = distributed.Client.register_plugin, []

    def losing(client, plugin):
        if len(lost) < times:
            lost.append(plugin)
            raise distributed.comm.CommClosedError("a worker was killed")
        return register(client, plugin)

    monkeypatch.setattr(distributed.Client, "register_plugin", losing)

    def start(security):
        return distributed.LocalCluster(1, processes=False, security=security, dashboard_address=None)

    with clusters.private_cluster(start) as client:
        assert client.submit(sum, [1, 2]).result(60) == 3
    assert len(lost) == min(times, clusters.TRIES)


def _once(path):
    """Kill the worker that is asked first."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "here"
    return os.kill(os.getpid(), 9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_workers_killed_at_start_up_and_in_a_broadcast_are_replaced(tmp_path, seed, monkeypatch):
    said = io.StringIO()
    monkeypatch.setattr(logging.getLogger("distributed"), "handlers", [logging.StreamHandler(said)])

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
        while "Restarting worker" not in said.getvalue() and time.perf_counter() < begun + 60:
            time.sleep(0.01)  # the answers of the other worker may come first
    assert "Restarting worker" in said.getvalue() and "Traceback" not in said.getvalue()
    name = f"Dask workers killed as they start and in a broadcast, seed {seed}"
    figures.record("faults", name, {"kills": 2, "wrong": 0}, time.perf_counter() - begun)
