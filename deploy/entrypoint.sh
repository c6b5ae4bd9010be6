#!/bin/sh
# Runs the roles named as arguments. Other containers reach this one by its hostname unless PELOTON_ADVERTISE says
# otherwise, so that a role can have any number of containers.
set -eu
PELOTON_ADVERTISE="${PELOTON_ADVERTISE:-$(hostname)}"
export PELOTON_ADVERTISE
rm -f "${PELOTON_HEALTH_FILE:-}" # of the process before a restart of the container
exec peloton serve "$@"
