"""Table of the protobuf messages of the calls, and conversion of JSON with the master's error texts.

The table has the parts of messages that frameworks of minicluster send; absent fields are not checked.
A field is `name:type`, with `!` after the name when required and `*` before it when repeated. `@` marks an enum.
"""

from __future__ import annotations

import re
from typing import Any

from services.lab.mesos.resources import Json

_ENUMS = {
    "CallType": (
        "UNKNOWN SUBSCRIBE TEARDOWN ACCEPT DECLINE ACCEPT_INVERSE_OFFERS DECLINE_INVERSE_OFFERS REVIVE KILL SHUTDOWN "
        "ACKNOWLEDGE ACKNOWLEDGE_OPERATION_STATUS RECONCILE RECONCILE_OPERATIONS MESSAGE REQUEST SUPPRESS "
        "UPDATE_FRAMEWORK"
    ),
    "OperationType": (
        "UNKNOWN LAUNCH LAUNCH_GROUP RESERVE UNRESERVE CREATE DESTROY GROW_VOLUME SHRINK_VOLUME CREATE_DISK "
        "DESTROY_DISK"
    ),
    "Capability": (
        "UNKNOWN REVOCABLE_RESOURCES TASK_KILLING_STATE GPU_RESOURCES SHARED_RESOURCES PARTITION_AWARE MULTI_ROLE "
        "RESERVATION_REFINEMENT REGION_AWARE"
    ),
    "ValueType": "SCALAR RANGES SET TEXT",
    "CheckType": "UNKNOWN COMMAND HTTP TCP",
    "ContainerType": "DOCKER MESOS",
    "ExecutorType": "UNKNOWN DEFAULT CUSTOM",
    "ReservationType": "UNKNOWN STATIC DYNAMIC",
    "VolumeMode": "RW RO",
    "MasterCallType": (
        "UNKNOWN GET_HEALTH GET_FLAGS GET_VERSION GET_METRICS GET_LOGGING_LEVEL SET_LOGGING_LEVEL LIST_FILES READ_FILE "
        "GET_STATE GET_AGENTS GET_FRAMEWORKS GET_EXECUTORS GET_OPERATIONS GET_TASKS GET_ROLES GET_WEIGHTS "
        "UPDATE_WEIGHTS GET_MASTER SUBSCRIBE RESERVE_RESOURCES UNRESERVE_RESOURCES CREATE_VOLUMES DESTROY_VOLUMES "
        "GROW_VOLUME SHRINK_VOLUME GET_MAINTENANCE_STATUS GET_MAINTENANCE_SCHEDULE UPDATE_MAINTENANCE_SCHEDULE "
        "START_MAINTENANCE STOP_MAINTENANCE GET_QUOTA UPDATE_QUOTA SET_QUOTA REMOVE_QUOTA TEARDOWN MARK_AGENT_GONE "
        "DRAIN_AGENT DEACTIVATE_AGENT REACTIVATE_AGENT"
    ),
}

_MESSAGES = {
    "Call": (
        "type:@CallType framework_id:Id subscribe:Subscribe accept:Accept decline:Decline revive:Roles suppress:Roles "
        "accept_inverse_offers:Decline decline_inverse_offers:Decline kill:Kill "
        "acknowledge:Acknowledge reconcile:Reconcile"
    ),
    "Id": "value!:string",
    "Subscribe": "framework_info!:FrameworkInfo force:bool *suppressed_roles:string",
    "FrameworkInfo": (
        "user!:string name!:string id:Id failover_timeout:double checkpoint:bool role:string *roles:string "
        "hostname:string principal:string webui_url:string *capabilities:FrameworkCapability labels:Labels"
    ),
    "FrameworkCapability": "type:@Capability",
    "Labels": "*labels:Label",
    "Label": "key!:string value:string",
    "Accept": "*offer_ids:Id *operations:Operation filters:Filters",
    "Decline": "*offer_ids:Id *inverse_offer_ids:Id filters:Filters",
    "Filters": "refuse_seconds:double",
    "Roles": "role:string *roles:string",
    "Kill": "task_id!:Id agent_id:Id kill_policy:KillPolicy",
    "KillPolicy": "grace_period:Duration",
    "Duration": "nanoseconds!:int",
    "Acknowledge": "agent_id!:Id task_id!:Id uuid!:bytes",
    "Reconcile": "*tasks:ReconcileTask",
    "ReconcileTask": "task_id!:Id agent_id:Id",
    "Operation": (
        "type:@OperationType id:Id launch:Launch reserve:Reserve unreserve:Reserve create:Create destroy:Create"
    ),
    "Launch": "*task_infos:TaskInfo",
    "Reserve": "*source:Resource *resources:Resource",
    "Create": "*volumes:Resource",
    "TaskInfo": (
        "name!:string task_id!:Id agent_id!:Id *resources:Resource executor:ExecutorInfo command:CommandInfo "
        "container:ContainerInfo health_check:HealthCheck kill_policy:KillPolicy data:bytes "
        "labels:Labels"
    ),
    "ExecutorInfo": (
        "type:@ExecutorType executor_id!:Id framework_id:Id command:CommandInfo container:ContainerInfo "
        "*resources:Resource name:string"
    ),
    "CommandInfo": ("*uris:Uri environment:Environment shell:bool value:string *arguments:string user:string"),
    "Uri": "value!:string executable:bool extract:bool cache:bool output_file:string",
    "Environment": "*variables:Variable",
    "Variable": "name!:string value:string",
    "ContainerInfo": "type!:@ContainerType *volumes:Volume hostname:string docker:DockerInfo",
    "DockerInfo": "image!:string privileged:bool force_pull_image:bool",
    "Volume": "mode!:@VolumeMode container_path!:string host_path:string",
    "HealthCheck": (
        "delay_seconds:double interval_seconds:double timeout_seconds:double consecutive_failures:int "
        "grace_period_seconds:double type:@CheckType command:CommandInfo http:Http tcp:Tcp"
    ),
    "Http": "scheme:string port!:int path:string",
    "Tcp": "port!:int",
    "Resource": (
        "name!:string type!:@ValueType scalar:Scalar ranges:Ranges set:Set role:string allocation_info:AllocationInfo "
        "reservation:Reservation *reservations:Reservation disk:Disk"
    ),
    "Scalar": "value!:double",
    "Ranges": "*range:Range",
    "Range": "begin!:int end!:int",
    "Set": "*item:string",
    "AllocationInfo": "role:string",
    "Reservation": "type:@ReservationType role:string principal:string labels:Labels",
    "Disk": "persistence:Persistence volume:Volume",
    "Persistence": "id!:string principal:string",
    # Operator API: only the envelope is typed, each call reads its own part.
    "MasterCall": (
        "type:@MasterCallType reserve_resources:AgentResources unreserve_resources:AgentResources "
        "create_volumes:AgentVolumes destroy_volumes:AgentVolumes "
        "update_maintenance_schedule:MaintenanceUpdate start_maintenance:Machines stop_maintenance:Machines"
    ),
    "AgentResources": "agent_id!:Id *resources:Resource",
    "AgentVolumes": "agent_id!:Id *volumes:Resource",
    "MaintenanceUpdate": "schedule!:Schedule",
    "Schedule": "*windows:Window",
    "Window": "*machine_ids:Machine unavailability!:Unavailability",
    "Unavailability": "start!:Duration duration:Duration",
    "Machines": "*machines:Machine",
    "Machine": "hostname:string ip:string",
}


_PLAIN: dict[str, type] = {"string": str, "bool": bool, "int": int, "double": float}


class Field:
    """Field of a message; ``plain`` is the JSON type of a value that requires no further check."""

    __slots__ = ("enum", "kind", "message", "name", "plain", "repeated")

    def __init__(self, name: str, kind: str, repeated: bool) -> None:
        self.name = name
        self.repeated = repeated
        self.enum = frozenset(_ENUMS[kind[1:]].split()) if kind.startswith("@") else None
        self.kind = "enum" if self.enum is not None else kind
        self.plain = _PLAIN.get(self.kind)
        self.message: Message | None = None


class Message:
    __slots__ = ("fields", "required")

    def __init__(self) -> None:
        self.fields: dict[str, Field] = {}
        self.required: dict[str, None] = {}  # in the order of the message


def _compile() -> dict[str, Message]:
    messages = {name: Message() for name in _MESSAGES}
    for name, text in _MESSAGES.items():
        required = []
        for item in text.split():
            field_name, _, kind = item.partition(":")
            repeated = field_name.startswith("*")
            field_name = field_name.lstrip("*")
            if field_name.endswith("!"):
                field_name = field_name[:-1]
                required.append(field_name)
            field = Field(field_name, kind, repeated)
            if kind in messages:
                field.kind = "message"
                field.message = messages[kind]
            messages[name].fields[field_name] = field
        messages[name].required = dict.fromkeys(required)
    return messages


MESSAGES = _compile()
_BAD_BASE64 = re.compile(r"[^A-Za-z0-9+/=]")
_SCALARS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "bytes": str,
    "enum": str,
    "bool": bool,
    "int": (int, float),
    "double": (int, float),
}


class ConversionError(ValueError):
    """JSON that does not fit the message; the text is the master's."""


def convert(value: Any, message: str) -> Json:
    """Check `value` against `message` in place: unknown enum names are dropped, single values become lists."""
    if not isinstance(value, dict):
        raise ConversionError("Expecting a JSON object")
    missing: list[str] = []
    _walk(value, MESSAGES[message], "", missing)
    if missing:
        raise ConversionError("Missing required fields: " + ", ".join(missing))
    return value


def _walk(value: Json, message: Message, path: str, missing: list[str]) -> None:
    fields = message.fields
    dropped = None
    for name, item in value.items():
        field = fields.get(name)
        if field is None:
            continue
        if field.repeated:
            if not isinstance(item, list):
                item = [item]
                value[name] = item
            if field.message is not None:
                for index, entry in enumerate(item):
                    if not isinstance(entry, dict):
                        raise _type_error(entry, name)
                    _walk(entry, field.message, f"{path}{name}[{index}].", missing)
            else:
                for entry in item:
                    if type(entry) is not field.plain:
                        _scalar(entry, field)
        elif field.message is not None:
            if not isinstance(item, dict):
                raise _type_error(item, name)
            _walk(item, field.message, f"{path}{name}.", missing)
        elif type(item) is not field.plain and not _scalar(item, field):
            dropped = [name] if dropped is None else [*dropped, name]
    if dropped is not None:
        for name in dropped:
            del value[name]
    if not value.keys() >= message.required.keys():
        missing.extend(path + name for name in message.required if name not in value)


def _scalar(item: Any, field: Field) -> bool:
    """Check a scalar; returns False for an unknown enum name, which counts as unset."""
    if not isinstance(item, _SCALARS[field.kind]) or (isinstance(item, bool) and field.kind != "bool"):
        raise _type_error(item, field.name)
    if field.enum is not None:
        return item in field.enum
    if field.kind == "bytes":
        assert isinstance(item, str)
        found = _BAD_BASE64.search(item)
        if found:
            raise ConversionError(
                f"Failed to base64 decode bytes field '{field.name}': Invalid character '{found.group()}'"
            )
    return True


def _type_error(item: Any, name: str) -> ConversionError:
    if item is None:
        return ConversionError(f"Not expecting a JSON null for field '{name}'")
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return ConversionError(f"Not expecting a JSON {kinds[type(item)]} for field '{name}'")
