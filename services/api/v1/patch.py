"""Merge of a PatchJob request into the current spec."""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.errors import InvalidArgument

# (field, alternative fields for the same setting, over which it takes precedence)
_PRECEDENCE = (("command", ("entrypoint", "environment")), ("container", ("image", "volume_mounts")))


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
        _refuse_overridden(target, patch)
    for field, value in patch.ListFields():
        current_value = getattr(target, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key in value:
                _merge(current_value[key], value[key])
        elif field.name == "containers" and len(current_value) == len(value) == 1:
            _merge(current_value[0], value[0])
        elif field.is_repeated:
            target.ClearField(field.name)
            getattr(target, field.name).extend(value)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not _is_mesos(field):
            current_value.SetInParent()
            _merge(current_value, value)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            current_value.CopyFrom(value)
        else:
            setattr(target, field.name, value)


def _is_mesos(field: FieldDescriptor) -> bool:
    """Return whether the field is a Mesos message, which is replaced as a whole since some of its fields are
    exclusive."""
    return field.message_type is not None and field.message_type.full_name.startswith("mesos.")


def _refuse_overridden(current: pod_pb2.ContainerSpec, patch: Message) -> None:
    patched = {field.name for field, _ in patch.ListFields()}
    for preferred, alternatives in _PRECEDENCE:
        overridden = patched.intersection(alternatives)
        if current.HasField(preferred) and preferred not in patched and overridden:  # type: ignore[arg-type]
            fields = ", ".join(sorted(overridden))
            raise InvalidArgument(
                f"the container's {preferred} takes precedence over {fields}: change {preferred}, or replace the spec"
            )
