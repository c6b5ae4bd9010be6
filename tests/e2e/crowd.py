"""Clients that submit jobs as fast as they can, and what became of their calls."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.client import NO_RETRIES, Client, retry_after_s
from tests.e2e.local import shell

CLIENTS = 8
POLL_S = 0.25
SOON_S = 0.1
"""Seconds that a client waits after a refusal: far less than the time that the refusal names."""
CALL_S = 600.0
"""Seconds after which a client gives up a call, without knowing whether its job is stored."""


class Crowd:
    """Clients that submit one job after the other and forget those that were refused, and one that reads."""

    def __init__(self, address: str, pool: str) -> None:
        fields = {"name": "press", "respoolID": {"value": pool}, "sla": {"preemptible": True}, "instanceCount": 1}
        self._config = ParseDict({**fields, "defaultConfig": shell("true", cpu=0.1)}, job_pb2.JobConfig())
        self._address = address
        self._lock = threading.Lock()
        self.ended = threading.Event()
        self.acknowledged: list[str] = []
        self.refused: set[str] = set()
        self.waits_s: list[float] = []
        self.texts: Counter[str] = Counter()
        self.unexpected: list[str] = []
        self.reads_s: list[float] = []
        self._threads = [threading.Thread(target=self._submit) for _ in range(CLIENTS)]
        self._threads.append(threading.Thread(target=self._read))

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.ended.set()
        for thread in self._threads:
            thread.join()

    def _submit(self) -> None:
        with Client(self._address, retry=NO_RETRIES) as client:
            while not self.ended.is_set():
                self._submit_one(client, str(uuid.uuid4()))

    def _submit_one(self, client: Client, job_id: str) -> None:
        """Submit one job and repeat the call until it is known whether the job is stored: only a refusal of the first
        call leaves certainly nothing."""
        request = job_pb2.CreateRequest(id=peloton_pb2.JobID(value=job_id), config=self._config)
        is_first, until_s = True, time.monotonic() + CALL_S
        while True:
            try:
                answer = client.jobs.Create(request, timeout=CALL_S)
            except grpc.RpcError as error:
                call: Any = error
                wait_s = retry_after_s(call)
                if wait_s is not None and is_first:
                    self._note_refusal(job_id, call.details(), wait_s)
                    return
                may_pass = wait_s is not None or call.code() is grpc.StatusCode.UNAVAILABLE
                if not may_pass or time.monotonic() > until_s:
                    self._note_unexpected(f"Create of {job_id}: {call.code()}: {call.details()}")
                    return
                is_first = False
                time.sleep(POLL_S)
            else:
                self._note_answer(job_id, answer)
                return

    def _note_refusal(self, job_id: str, text: str, wait_s: float) -> None:
        with self._lock:
            self.refused.add(job_id)
            self.waits_s.append(wait_s)
            self.texts[text.partition(" ")[2].partition(",")[0]] += 1
        self.ended.wait(SOON_S)

    def _note_unexpected(self, text: str) -> None:
        with self._lock:
            self.unexpected.append(text)

    def _note_answer(self, job_id: str, answer: job_pb2.CreateResponse) -> None:
        is_known = answer.HasField("error") and answer.error.HasField("alreadyExists")
        if answer.HasField("error") and not is_known:
            self._note_unexpected(f"Create of {job_id}: {answer.error}")
            return
        with self._lock:
            self.acknowledged.append(job_id)

    def _read(self) -> None:
        """Reads are answered all the time."""
        with Client(self._address, retry=NO_RETRIES) as client:
            while not self.ended.wait(POLL_S):
                for job_id in self.acknowledged[-1:]:
                    asked_s = time.monotonic()
                    try:
                        answer = client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=job_id)), timeout=CALL_S)
                    except grpc.RpcError as error:
                        self._note_unexpected(f"Get of {job_id}: {error}")
                        continue
                    self.reads_s.append(time.monotonic() - asked_s)
                    if answer.jobInfo.id.value != job_id:
                        self._note_unexpected(f"Get of {job_id}: {answer}")
