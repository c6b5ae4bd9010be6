"""Metrics as Prometheus scrapes them."""

from __future__ import annotations

import re
import socket
import ssl
import urllib.error
import urllib.request
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.metrics.view import View

from peloton.api.tls_files import TlsPaths
from peloton.errors import InvalidSettings
from services.telemetry import exposition, scrape
from services.telemetry.exposition import LABEL_CHARS_MAX, expose
from services.telemetry.metrics import counter, histogram, register_gauge
from services.telemetry.table import ROWS, Kind
from services.tls.authority import LocalAuthority
from services.tls.secured import TlsTransport
from tests.nightly import NIGHTLY
from tests.promtool import run_promtool

HOSTILE = [
    '/a"} 1\nevil 2',
    "\\",
    "\x1b[2J\0",
    "\u2028x",
    "/" + "x" * 10_000,
    "émoji 🚀",
    '\\"',
    "\r\n# TYPE x counter",
]
LINE = re.compile(r'[a-z_]+(\{[a-z_]+="(?:[^"\\\n]|\\\\|\\")*"(,[a-z_]+="(?:[^"\\\n]|\\\\|\\")*")*\})? \S+')


def text_of(reader: InMemoryMetricReader, **own: str) -> list[str]:
    return expose(reader.get_metrics_data(), own).decode().splitlines()


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


def test_each_kind_has_its_lines(reader: InMemoryMetricReader) -> None:
    """Counters end in total, histograms have cumulative buckets, and every line has the labels of the process."""
    meter = MeterProvider([reader]).get_meter("test")
    counter("peloton.pool.admitted", meter).add(3, {"pool": "/eng"})
    histogram("peloton.placement.duration", meter).record(0.3)
    register_gauge("peloton.hosts.free", lambda _: [Observation(2.5, {"kind": "cpu"})], meter)

    lines = text_of(reader, role="api")

    assert 'peloton_pool_admitted_total{role="api",pool="/eng"} 3' in lines
    assert "# TYPE peloton_pool_admitted_total counter" in lines
    assert 'peloton_hosts_free{role="api",kind="cpu"} 2.5' in lines
    assert 'peloton_placement_duration_seconds_bucket{role="api",le="0.25"} 0' in lines
    assert 'peloton_placement_duration_seconds_bucket{role="api",le="0.5"} 1' in lines
    assert 'peloton_placement_duration_seconds_bucket{role="api",le="+Inf"} 1' in lines
    assert 'peloton_placement_duration_seconds_sum{role="api"} 0.3' in lines
    assert 'peloton_placement_duration_seconds_count{role="api"} 1' in lines


@pytest.mark.parametrize("path", HOSTILE)
def test_hostile_labels_stay_in_their_quotation_marks(reader: InMemoryMetricReader, path: str) -> None:
    """No value of a label ends its line, its quotation marks, or the bound on its length."""
    meter = MeterProvider([reader]).get_meter("test")
    counter("peloton.pool.admitted", meter).add(1, {"pool": path})

    (line,) = [line for line in text_of(reader) if not line.startswith("#")]

    assert LINE.fullmatch(line)
    assert len(line) < 6 * LABEL_CHARS_MAX + 100
    assert line.isprintable()


def test_values_beyond_the_limit_are_added_up(reader: InMemoryMetricReader) -> None:
    """A label with too many values has one more series, for all further ones."""
    name = "peloton.api.refused"
    view = View(instrument_name=name, aggregation_cardinality_limit=3)
    refused = counter(name, MeterProvider([reader], views=[view]).get_meter("test"))
    for number in range(10):
        refused.add(1, {"rule": f"rule {number}"})

    lines = [line for line in text_of(reader) if line.startswith("peloton")]

    assert 'peloton_api_refused_total{overflow="True"} 7' in lines
    assert len(lines) == 4


def test_an_answer_has_a_bound(reader: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer answer ends with a line that says so."""
    monkeypatch.setattr(exposition, "LINES_MAX", 5)
    histogram("peloton.placement.duration", MeterProvider([reader]).get_meter("test")).record(1)

    lines = text_of(reader)

    assert (6, "# more than 5 lines are left out") == (len(lines), lines[-1])


def test_the_endpoint_answers_at_its_path_alone() -> None:
    """The path of the metrics has the text, any other one is refused."""
    port = scrape.serve("127.0.0.1", 0, lambda: b"one 1\n")
    url = f"http://127.0.0.1:{port}"

    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        assert (b"one 1\n", scrape.CONTENT_TYPE) == (answer.read(), answer.headers["Content-Type"])
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{url}/other", timeout=60)


def test_silent_connections_are_bounded() -> None:
    """One beyond the limit closes the oldest of those that send nothing."""
    port = scrape.serve("127.0.0.1", 0, lambda: b"")
    open_ones = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(scrape.CONNECTIONS_MAX)]
    try:
        with closing(socket.create_connection(("127.0.0.1", port), timeout=60)):
            assert open_ones[0].recv(1) == b""
    finally:
        for one in open_ones:
            one.close()


def test_a_port_in_use_is_named() -> None:
    """A process whose port is taken says which setting to change."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidSettings, match=f"PELOTON_METRICS_PORT={port}: cannot listen"):
            scrape.serve("127.0.0.1", port, lambda: b"")


@NIGHTLY
def test_prometheus_accepts_every_metric(reader: InMemoryMetricReader) -> None:
    """Prometheus's own checker has no fault in the whole table, hostile labels included."""
    meter = MeterProvider([reader]).get_meter("test")
    for row in ROWS:
        for text in HOSTILE:
            labels = dict.fromkeys(row.labels, text)
            match row.kind:
                case Kind.COUNTER:
                    counter(row.name, meter).add(1, labels)
                case Kind.HISTOGRAM:
                    histogram(row.name, meter).record(1, labels)
        if row.kind is Kind.GAUGE:
            read = partial(observe_hostile, row.labels)
            register_gauge(row.name, read, meter)

    run_promtool("check", "metrics", stdin=expose(reader.get_metrics_data(), {"role": "api"}))


def observe_hostile(labels: tuple[str, ...], _: CallbackOptions) -> list[Observation]:
    return [Observation(1, dict.fromkeys(labels, text)) for text in (HOSTILE if labels else [""])]


def test_prometheus_shows_a_certificate(tmp_path: Path) -> None:
    """The endpoint speaks HTTPS with the certificate of the process, and refuses clients without one."""
    authority = LocalAuthority(tmp_path, "test")
    issued, client = authority.issue_role("worker", ["127.0.0.1"]), authority.issue("prometheus")
    transport = TlsTransport(TlsPaths(str(authority.ca_file), str(issued.cert), str(issued.key)))
    port = scrape.serve("127.0.0.1", 0, lambda: b"one 1\n", transport.http_context())
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    url = f"https://127.0.0.1:{port}{scrape.PATH}"
    with pytest.raises(OSError, match=r"(?i)certificate required|closed|reset|eof"):
        urllib.request.urlopen(url, context=context, timeout=30)
    context.load_cert_chain(client.cert, client.key)
    with urllib.request.urlopen(url, context=context, timeout=30) as answer:
        assert b"one 1\n" == answer.read()
