"""The problems that the resource manager can detect, for the overview."""

from __future__ import annotations

from collections.abc import Callable

import grpc.aio

from peloton.api.convert_overview import problem_to_wire
from peloton.api.private import resmgr_pb2 as pb
from peloton.api.private import resmgr_pb2_grpc
from peloton.lifecycle import problems
from services.resmgr.explain.unfit import UnfitJobs
from services.resmgr.recorder import Recorder
from services.resmgr.state import ResmgrState


class ProblemsServicer(resmgr_pb2_grpc.ProblemsServicer):
    def __init__(self, state: Callable[[], ResmgrState], unfit: UnfitJobs, recorder: Recorder | None) -> None:
        self._state, self._unfit, self._recorder = state, unfit, recorder

    async def FindProblems(
        self, request: pb.FindProblemsRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> pb.FindProblemsResponse:
        found = problems.unfit_jobs(await self._unfit.find(self._state()))
        if self._recorder is not None:
            found += problems.late_recorder(self._recorder.behind_s(), self._recorder.period_s)
        return pb.FindProblemsResponse(problems=map(problem_to_wire, found))
