"""Variables with Peloton's prefix that are no settings of roles: commands, pods, tests and benchmarks read them."""

from __future__ import annotations

from services.setting_rules import PREFIX

CONFIG = f"{PREFIX}CONFIG"
OTHER_VARIABLES = {
    CONFIG: "TOML file of settings, for all roles and commands that read settings; `--config FILE` names it too",
    f"{PREFIX}ADDRESS": "commands: address of the API, as `--address`",
    f"{PREFIX}API_CA_FILE": "clients: PEM file of the authorities of the API, as `--ca-file`; with it calls use TLS",
    f"{PREFIX}API_CERT_FILE": "clients: PEM file of their certificate, as `--cert-file`",
    f"{PREFIX}API_KEY_FILE": "clients: PEM file of its key, as `--key-file`; empty: it is in the same file",
    f"{PREFIX}API_SERVER_NAME": "clients: name that the certificate of the API must have, as `--server-name`",
    f"{PREFIX}TOKEN": "clients: token that calls carry; it precedes the one that `peloton login` stored",
    f"{PREFIX}TOKEN_FILE": "clients: file with the token, which is read again when it changes",
    f"{PREFIX}TIMEOUT": "commands: timeout of a call, as `--timeout`",
    f"{PREFIX}JOBMGR_URL": "commands: address for calls about jobs, as `--jobmgr`",
    f"{PREFIX}RESMGR_URL": "commands: address for calls about pools, as `--resmgr`",
    f"{PREFIX}HOSTMGR_URL": "commands: address for calls about hosts, as `--hostmgr`",
    f"{PREFIX}JOB_ID": "pods: id of the job; Peloton sets it",
    f"{PREFIX}INSTANCE_ID": "pods: number of the instance; Peloton sets it",
    f"{PREFIX}TASK_ID": "pods: JOB-INSTANCE; Peloton sets it",
    f"{PREFIX}SIMULATE_SECONDS": "pods on simulated hosts: seconds until they end, see [minicluster](minicluster.md)",
    f"{PREFIX}SIMULATE_SHARE": "pods on simulated hosts: share of their resources that they use",
}
"""The variables that are no settings of roles: commands and pods read them."""
OTHER_PREFIXES = {
    f"{PREFIX}TEST_": "tests, see CONTRIBUTING.md",
    f"{PREFIX}GANG_": "pods of gangs: ranks and peers, see [discovery](frameworks/discovery.md); Peloton sets them",
    f"{PREFIX}BENCH_": "benchmarks, see [benchmarks](benchmarks.md)",
}
