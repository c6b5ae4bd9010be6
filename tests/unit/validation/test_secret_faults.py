"""Rules for secrets in configurations."""

from __future__ import annotations

from peloton.api.mesos.v1 import mesos_pb2
from services.api.validation import NO_REFERENCE, secret_fault, secret_pod_fault
from tests.unit.validation.test_job_faults import config


def test_secrets() -> None:
    """A config never contains a secret; the job's may refer to the job's own secrets, and an instance's may not."""
    plain, sneaky = config(), config()
    volume = sneaky.defaultConfig.container.volumes.add(mode=mesos_pb2.Volume.RO, container_path="/s")
    volume.source.type = mesos_pb2.Volume.Source.SECRET

    assert secret_fault(plain, False) == ""
    assert secret_fault(sneaky, False) == "adding secret volumes directly in config is not allowed"
    volume.source.secret.reference.name = "tls"  # a secret of the cluster: its data is not in the config
    assert secret_fault(sneaky, False) == ""
    sneaky.defaultConfig.initContainers.add().container.volumes.add().source.type = mesos_pb2.Volume.Source.SECRET
    assert secret_fault(sneaky, False) == "adding secret volumes directly in config is not allowed"

    referring = config()
    referring.defaultConfig.secrets.add(path="/s")
    texts = ["", *[NO_REFERENCE] * 2]
    assert texts == [
        secret_fault(referring, False),
        secret_fault(referring, True),
        secret_pod_fault(referring.defaultConfig),
    ]
    plain.instanceConfig[1].secrets.add(path="/s")
    assert secret_fault(plain, False) == NO_REFERENCE
