"""The local server: what it sends, what it refuses, and its memory on large dumps."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest

from sgsdump.cli import main
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.io import open_dump, save_dump
from sgsdump.errors import ConfigError, ValuesError
from sgsdump.reports.server.pages import of_dump, of_dumps, of_folder, page_in
from sgsdump.reports.server.serve import PageServer
from sgsdump.tensors.tensor import Tensor

RANDOM = np.random.default_rng(2)
BENCHMARK = {f"conv{i}": RANDOM.normal(size=(1, 6, 20, 30)).astype(np.float32) for i in range(4)}
SAMPLE = {name: values + np.float32(0.01) for name, values in BENCHMARK.items()}
SAMPLE["conv2"][0, 4, 7, 9] += 5


def dump(values, path, form=None):
    records = [
        Record("out", 0, i, "Conv", Tensor.of(name, array, layout="NCHW"))
        for i, (name, array) in enumerate(values.items())
    ]
    save_dump(Dump(records), path, form)
    return open_dump(path)


class Client:
    """Requests to a running server."""

    def __init__(self, server):
        self.server, self.path = server, f"/{server.token}/"

    def ask(self, path="", method="GET", host=None, whole=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=10)
        connection.putrequest(method, self.path + path if whole is None else whole, skip_host=True)
        connection.putheader("Host", host or f"127.0.0.1:{self.server.server_port}")
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()

    def json(self, path):
        status, _, data = self.ask(path)
        assert status == 200
        return json.loads(data)


@pytest.fixture
def serving():
    servers = []

    def start(contents):
        server = PageServer(contents)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        servers.append((server, thread))
        return Client(server)

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def two(tmp_path):
    return dump(SAMPLE, tmp_path / "a.npz"), dump(BENCHMARK, tmp_path / "b.npz")


def finished(client):
    for _ in range(200):
        state = client.json("state")
        if not state["running"]:
            return state
        time.sleep(0.05)
    raise AssertionError("the comparison does not end")


def test_two_dumps(serving, two):
    client = serving(of_dumps(*two, (), {}, "a against b", ()))
    status, headers, page = client.ask()
    assert status == 200 and headers["Content-Type"].startswith("text/html") and page.startswith(b"<!doctype html>")
    assert finished(client) == {"running": False, "isCompared": True, "done": 4, "of": 4, "failure": ""}
    assert b"DIFFERS" in client.ask()[2]
    tensor = client.json("tensor/2")
    assert tensor["count"] == 6 and tensor["size"] == [20, 30] and tensor["numbers"][0] == 4
    expected = np.abs(SAMPLE["conv2"] - BENCHMARK["conv2"])[0].sum(axis=(1, 2))
    assert tensor["errors"] == pytest.approx(expected.tolist(), rel=1e-5)
    status, headers, data = client.ask("plane/2/4")
    planes = np.frombuffer(data, "<f4").reshape(2, 20, 30)
    assert np.array_equal(planes[0], SAMPLE["conv2"][0, 4]) and np.array_equal(planes[1], BENCHMARK["conv2"][0, 4])
    assert headers["X-Grid"] == "20 30" and headers["X-Worst"] == "7 9"


def test_a_single_dump(serving, two):
    client = serving(of_dump(two[1], "b"))
    assert client.json("state")["running"] is False
    assert b"4 tensors." in client.ask()[2] and client.json("tensor/0")["single"] is True


def test_the_folder_of_a_diagnosis(serving, tmp_path):
    (tmp_path / "report.html").write_text("<!doctype html><title>x</title>")
    client = serving(of_folder(page_in(tmp_path)))
    assert client.ask()[2].endswith(b"</title>") and client.ask("tensor/0")[0] == 404
    (tmp_path / "report.html").write_text("something else")
    with pytest.raises(ValuesError, match="is not a page of sgsdump"):
        of_folder(page_in(tmp_path))
    assert page_in(tmp_path / "absent") is None


@pytest.mark.parametrize(
    "path",
    [
        *("tensor/4", "tensor/-1", "tensor/0/0", "tensor/", "tensor/1e0", "tensor/%D9%A1", "plane/0", "plane/0/6", "x"),
        *("../", "..%2f..%2fetc/passwd", "../../../../etc/passwd", "state/", "tensor/99999999999999999999"),
    ],
)
def test_nothing_else_is_there(serving, two, path):
    client = serving(of_dumps(*two, (), {}, "t", ()))
    assert client.ask(path)[0] == 404


def test_without_the_token_nothing_is_told(serving, two):
    client = serving(of_dumps(*two, (), {}, "t", ()))
    token = client.server.token
    assert len(token) >= 32
    for whole in ("/", "/state", f"/{token[:-1]}x/", f"/{token}", f"/x/{token}/", f"x/{token}/", "*"):
        assert client.ask(whole=whole)[::2] == (404, b"not found\n"), whole


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "[::1]:80", ""])
def test_another_host_is_refused(serving, two, host):
    """A name of another site that resolves to this computer."""
    client = serving(of_dumps(*two, (), {}, "t", ()))
    assert client.ask(host=host or " ")[0] == 403


def test_only_reading_and_safe_headers(serving, two):
    client = serving(of_dumps(*two, (), {}, "t", ()))
    assert {client.ask(method=method)[0] for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE")} == {501}
    status, headers, data = client.ask(method="HEAD")
    assert status == 200 and data == b"" and int(headers["Content-Length"]) > 1000
    assert headers["Cache-Control"] == "no-store" and headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin" and headers["Referrer-Policy"] == "no-referrer"
    assert not any(name.startswith("Access-Control") for name in headers)
    assert client.server.server_address[0] == "127.0.0.1"


def test_a_file_that_changes_is_told(serving, tmp_path):
    folder = tmp_path / "a.bin"
    sample, benchmark = dump(SAMPLE, folder, "sigmastar_bin"), dump(BENCHMARK, tmp_path / "b.bin", "sigmastar_bin")
    client = serving(of_dumps(sample, benchmark, (), {}, "t", ()))
    finished(client)
    time.sleep(0.01)
    folder.write_bytes(folder.read_bytes()[:-7])
    status, _, text = client.ask("tensor/1")
    assert status in (404, 409) and b"Traceback" not in text


def test_dumps_without_a_common_layer(serving, tmp_path):
    client = serving(of_dumps(dump({"x": BENCHMARK["conv0"]}, tmp_path / "x.npz"),
                              dump({"y": BENCHMARK["conv1"][:, :2]}, tmp_path / "y.npz"), (), {}, "t", ()))  # fmt: skip
    assert "no layer in common" in finished(client)["failure"]


def test_a_port_in_use(two):
    first = PageServer(of_dump(two[0], "a"))
    with pytest.raises(ConfigError, match="port"):
        PageServer(of_dump(two[0], "a"), first.server_port)
    with pytest.raises(ConfigError, match="port"):
        PageServer(of_dump(two[0], "a"), 99999)
    first.server_close()


@pytest.mark.skipif(sys.platform != "linux", reason="signals and /proc of Linux")
def test_the_command_opens_dumps_with_a_reader_and_chosen_files(serving, tmp_path, monkeypatch):
    served = []

    class NoServer:
        url = ""

        def __init__(self, contents, port):
            served.append(contents)

        def run(self):
            pass

    monkeypatch.setattr("sgsdump.reports.server.serve.PageServer", NoServer)
    reader = tmp_path / "mine.py"
    reader.write_text("import numpy as np\n\n\ndef read(path):\n    yield 'x', np.fromfile(path, np.int16)\n")
    (tmp_path / "run.mine").write_bytes(b"\1\0\2\0")
    folder = tmp_path / "folder"
    folder.mkdir()
    np.save(folder / "y.npy", np.ones(3))
    np.save(folder / "z.npy", np.ones(3))
    (folder / "report.html").write_text("another page")
    assert main(["report", str(tmp_path / "run.mine"), "--serve", "--reader", str(reader)]) == 0
    assert main(["report", str(folder), "--serve", "--files", "y*"]) == 0
    assert main(["report", *[str(tmp_path / "run.mine")] * 2, "--serve", "--reader", str(reader)]) == 0
    clients = [serving(contents) for contents in served]
    assert [client.json("tensor/0")["single"] for client in clients] == [True, True, False]
    assert b"another page" not in clients[1].ask()[2]


def test_the_command_stops_with_ctrl_c_and_stays_small(tmp_path):
    """256 MB of tensors: the memory of the process itself stays below 200 MB."""
    large = np.zeros((1, 16, 1024, 1024), np.float32)
    for side in ("a", "b"):
        for i in range(4):
            folder = tmp_path / side
            folder.mkdir(exist_ok=True)
            np.save(folder / f"conv{i}.npy", large + i)
    process = subprocess.Popen(
        [sys.executable, "-m", "sgsdump", "report", "a", "b", "--serve"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SGSDUMP_NO_PLUGINS": "1"},
        # Shells let programs in the background ignore Ctrl-C, and their children inherit this.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        url = process.stdout.readline().split()[1]
        host, _, rest = url.removeprefix("http://").partition("/")
        for path in ("", "tensor/1", "plane/1/3"):
            connection = http.client.HTTPConnection(host, timeout=60)
            connection.request("GET", f"/{rest}{path}")
            assert connection.getresponse().read()
        with open(f"/proc/{process.pid}/status") as status:
            [own] = [line for line in status if line.startswith("RssAnon")]
        assert int(own.split()[1]) < 200_000
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert not (tmp_path / "report.html").exists()
