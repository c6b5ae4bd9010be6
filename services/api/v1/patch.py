"""Merge of a PatchJob request into the current spec."""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.errors import InvalidArgument

# (field that takes precedence, alternative fields for the same setting)
_WINS = (("command", ("entrypoint", "environment")), ("container", ("image", "volume_mounts")))


def apply_patch(current: stateless_pb2.JobSpec, patch: stateless_pb2.JobSpec) -> stateless_pb2.JobSpec:
    """Return ``current`` merged with the fields set in ``patch``.

    Messages are merged field by field, and so are a pod's only container and the spec of each named instance; other
    lists replace the current ones. Zero and empty values of the patch are ignored: clearing a field requires a
    replacement of the spec. Raises InvalidArgument for a change that would have no effect.
    """
    spec = stateless_pb2.JobSpec()
    spec.CopyFrom(current)
    _merge(spec, patch)
    return spec


def _merge(target: Message, patch: Message) -> None:
    if isinstance(target, pod_pb2.ContainerSpec):
        _refuse_hidden(target, patch)
    for field, value in patch.ListFields():
        mine = getattr(target, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key in value:
                _merge(mine[key], value[key])
        elif field.name == "containers" and len(mine) == len(value) == 1:
            _merge(mine[0], value[0])
        elif field.is_repeated:
            target.ClearField(field.name)
            getattr(target, field.name).extend(value)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not _is_mesos(field):
            mine.SetInParent()
            _merge(mine, value)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            mine.CopyFrom(value)
        else:
            setattr(target, field.name, value)


def _is_mesos(field: FieldDescriptor) -> bool:
    """Return whether the field is a Mesos message, which is replaced as a whole since some of its fields are
    exclusive."""
    return field.message_type is not None and field.message_type.full_name.startswith("mesos.")


def _refuse_hidden(current: pod_pb2.ContainerSpec, patch: Message) -> None:
    given = {field.name for field, _ in patch.ListFields()}
    for winner, others in _WINS:
        hidden = given.intersection(others)
        if current.HasField(winner) and winner not in given and hidden:  # type: ignore[arg-type]
            raise InvalidArgument(
                f"the container's {winner} wins over {', '.join(sorted(hidden))}: change {winner}, or replace the spec"
            )
