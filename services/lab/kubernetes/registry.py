"""Writes of an apiserver: defaults, admission, validation, preconditions, and finally the store."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable

import orjson

from services.lab.kubernetes import admission, validation
from services.lab.kubernetes.deletion import DeleteOptions, check_preconditions, mark_deleted
from services.lab.kubernetes.errors import bad_request, cause, conflict, invalid, not_found, was_modified
from services.lab.kubernetes.new_objects import fill_defaults
from services.lab.kubernetes.pods import CHANGEABLE, frozen, with_condition, with_defaults
from services.lab.kubernetes.resources import PODS, Json, Resource
from services.lab.kubernetes.store import Entry, Store
from services.lab.kubernetes.times import stamp

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_GENERATED_PREFIX_MAX = 63 - _SUFFIX_LENGTH
_KEPT_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


class Registry:
    """Write path of the servers, controllers and emulated nodes. A call is atomic: it raises ApiError without a
    change.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def create(self, resource: Resource, namespace: str, body: Json) -> Entry:
        metadata = _new_metadata(resource, namespace, body)
        if resource.namespaced:
            admission.check_namespace(self.store, resource, namespace, metadata["name"])
        new = fill_defaults(resource, {**body, "metadata": metadata})
        if resource is PODS:
            new["spec"] = admission.admit_spec(self.store, metadata["name"], new["spec"])
        if faults := validation.faults(resource, new):
            raise invalid(resource, metadata["name"], faults)
        if resource is PODS:
            admission.check_quota(self.store, new)
        return self.store.create(resource.plural, new)

    # Update

    def update(self, resource: Resource, namespace: str, name: str, body: Json) -> Entry:
        """Replace all but the status."""
        old = self.read(resource, namespace, name)
        new = _check_metadata(resource, name, body, old)
        if "status" in resource.subresources:
            new = {**{key: value for key, value in new.items() if key != "status"}, "status": old.get("status") or {}}
        if resource is PODS:
            new["spec"] = _change_spec(name, old, new)
        if faults := validation.faults(resource, new):
            raise invalid(resource, name, faults)
        if resource.has_generation and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        metadata = new["metadata"]
        is_released = bool(old["metadata"].get("finalizers")) and not metadata.get("finalizers")
        if is_released and "deletionTimestamp" in metadata and not metadata.get("deletionGracePeriodSeconds"):
            # The last event shows the object with its finalizer, the answer without it.
            self.store.delete(resource.plural, namespace, name)
            return Entry(new, orjson.dumps(new), 0)
        return self.store.update(resource.plural, new)

    def update_status(self, resource: Resource, namespace: str, name: str, body: Json) -> Entry:
        """Replace the status, and labels and annotations; the spec is unchanged."""
        old = self.read(resource, namespace, name)
        metadata = {
            **_check_metadata(resource, name, body, old)["metadata"],
            "finalizers": old["metadata"].get("finalizers"),
        }
        status = body.get("status") or {}
        if resource is PODS:
            status = {"qosClass": old["status"].get("qosClass"), **status}
        return self.store.update(resource.plural, {**old, "metadata": _without_empty(metadata), "status": status})

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Json], Json],
        is_status: bool = False,
    ) -> Entry:
        """Apply ``change``, which returns the patched object; a version in it must equal the stored one."""
        new = change(self.read(resource, namespace, name))
        return (self.update_status if is_status else self.update)(resource, namespace, name, new)

    def read(self, resource: Resource, namespace: str, name: str) -> Json:
        """Return the object. Raises ApiError 404."""
        entry = self.store.get(resource.plural, namespace, name)
        if entry is None:
            raise not_found(resource, name)
        return entry.body

    def disrupt(self, pod: Json, reason: str, message: str) -> None:
        """Record on a pod why it is about to be deleted."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": stamp(),
            "reason": reason,
            "message": message,
        }
        self.store.update("pods", {**pod, "status": with_condition(pod["status"], condition)})

    # Delete

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        options: DeleteOptions = DeleteOptions(),  # noqa: B008
    ) -> tuple[Entry, bool]:
        """Return the last state of the object, and whether it was removed; otherwise it waits with a
        deletionTimestamp.
        """
        entry = self.store.get(resource.plural, namespace, name)
        if entry is None:
            raise not_found(resource, name)
        check_preconditions(resource, entry.body, options)
        new, is_over = mark_deleted(resource, entry.body, options, time.time())
        if new is not entry.body:
            entry = self.store.update(resource.plural, new)
        # A subscriber of the store may have deleted the object already.
        if is_over and self.store.get(resource.plural, namespace, name) is not None:
            entry = self.store.delete(resource.plural, namespace, name)
        return entry, is_over


def _new_metadata(resource: Resource, namespace: str, body: Json) -> Json:
    given = body.get("metadata") or {}
    if (given.get("namespace") or namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if given.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    name = given.get("name") or ""
    if not name and given.get("generateName"):
        suffix = "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))
        name = given["generateName"][:_GENERATED_PREFIX_MAX] + suffix
    metadata: Json = {"name": name}
    if resource.namespaced:
        metadata["namespace"] = namespace
    metadata["uid"] = str(uuid.uuid4())
    if resource.has_generation:
        metadata["generation"] = 1
    metadata["creationTimestamp"] = stamp()
    left_out = {*metadata, *_KEPT_METADATA, "managedFields"}
    return metadata | {key: value for key, value in given.items() if value is not None and key not in left_out}


def _check_metadata(resource: Resource, name: str, body: Json, old: Json) -> Json:
    """Return the new body with the metadata that clients cannot set. Raises ApiError."""
    given, kept = body.get("metadata") or {}, old["metadata"]
    if given.get("name", name) != name:
        raise bad_request(f"the name of the object ({given['name']}) does not match the name on the URL ({name})")
    check_uid(resource, old, given.get("uid") or "")
    version = given.get("resourceVersion")
    if version and version != kept["resourceVersion"]:
        raise was_modified(resource, name)
    metadata = {key: value for key, value in given.items() if key not in (*_KEPT_METADATA, "managedFields")}
    metadata |= {key: kept[key] for key in (*_KEPT_METADATA, "name", "namespace", "resourceVersion") if key in kept}
    return {"kind": resource.kind, "apiVersion": resource.api_version, **body, "metadata": _without_empty(metadata)}


def _without_empty(metadata: Json) -> Json:
    optional = ("labels", "annotations", "finalizers", "ownerReferences")
    return {key: value for key, value in metadata.items() if value or (value is not None and key not in optional)}


def _change_spec(name: str, old: Json, new: Json) -> Json:
    spec = with_defaults(new.get("spec") or {})
    for field in ("priority", "preemptionPolicy", "tolerations"):
        if field not in spec and field in old["spec"]:
            spec[field] = old["spec"][field]
    if not spec.get("schedulingGates"):
        spec.pop("schedulingGates", None)
    if frozen(spec) != frozen(old["spec"]):
        text = f"Forbidden: pod updates may not change fields other than {CHANGEABLE}"
        raise invalid(PODS, name, [cause("spec", validation.FORBIDDEN, text)])
    return spec


def check_uid(resource: Resource, stored: Json, wanted: str) -> None:
    """Raise ApiError 409 when another object has the name."""
    metadata = stored["metadata"]
    if wanted and wanted != metadata["uid"]:
        place = "/".join(filter(None, (resource.plural, metadata.get("namespace"), metadata["name"])))
        why = (
            f"StorageError: invalid object, Code: 4, Key: /registry/{place}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {metadata['uid']}"
        )
        raise conflict(resource, metadata["name"], why)
