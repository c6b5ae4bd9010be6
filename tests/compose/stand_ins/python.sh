#!/bin/sh
# Runs a module of the tests by its own name: mesos-master, otel-collector.
exec "$TEST_PYTHON" -m "tests.compose.stand_ins.$(basename "$0" | tr - _)" "$@"
