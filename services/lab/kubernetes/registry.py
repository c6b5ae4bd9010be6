"""Writes of an apiserver: defaults, admission, validation, preconditions, and finally the store."""

from __future__ import annotations

import secrets
import time
import uuid
from base64 import b64encode
from collections.abc import Callable

import orjson

from services.lab.kubernetes import admission, forms, validation
from services.lab.kubernetes.deletion import DeleteOptions, check_preconditions, marked
from services.lab.kubernetes.errors import (
    already_exists,
    bad_request,
    cause,
    conflict,
    invalid,
    not_found,
    was_modified,
)
from services.lab.kubernetes.pods import (
    CHANGEABLE,
    NOT_READY,
    first_status,
    may_become,
    with_condition,
    with_defaults,
)
from services.lab.kubernetes.resources import (
    BUDGETS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUOTAS,
    SECRETS,
    Json,
    Resource,
)
from services.lab.kubernetes.store import Entry, Store
from services.lab.kubernetes.times import stamp

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_GENERATED_PREFIX_MAX = 63 - _SUFFIX_LENGTH
_KEPT_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_WITH_SPEC = ("pods", "nodes", BUDGETS.plural, QUOTAS.plural)
FIRST_STATUSES: dict[str, Json] = {
    BUDGETS.plural: {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
    QUOTAS.plural: {},
}

# Of a pod that is about to be created; raises ApiError when a quota forbids it.
Admission = Callable[[str, Json], None]


class Registry:
    """Write path of the servers and the emulated nodes. A call is atomic: it raises ApiError without a change."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.check_quota: Admission | None = None

    # Create

    def create(self, resource: Resource, namespace: str, body: Json, dry_run: bool = False) -> Entry:
        body = _formed(resource, body)
        metadata = self._new_metadata(resource, namespace, body)
        name = metadata["name"]
        if resource.namespaced:
            admission.check_namespace(self.store, resource, namespace, name)
        new = {**body, "metadata": metadata}
        if resource is PODS:
            new = self._new_pod(new)
        elif resource is NAMESPACES:
            labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": name}
            new["metadata"] = {**metadata, "labels": labels}
            new |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        elif resource.plural in FIRST_STATUSES:
            new["status"] = FIRST_STATUSES[resource.plural]
        elif resource is PRIORITY_CLASSES:
            new = {"preemptionPolicy": "PreemptLowerPriority", **new}
        elif resource is NODES:
            new = {**new, "spec": new.get("spec") or {}, "status": new.get("status") or {}}
            # The admission plugin adds it, until the node reports that it is ready.
            taints = new["spec"].get("taints") or []
            if not any(one["key"] == NOT_READY and one["effect"] == "NoSchedule" for one in taints):
                taints = [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]
            new["spec"] = {**new["spec"], "taints": taints}
        faults = validation.faults(resource, new)
        if faults:
            raise invalid(resource, name, faults)
        if resource is PODS and self.check_quota is not None:
            self.check_quota(namespace, new)
        if not dry_run:
            return self.store.create(resource.plural, new)
        if self.store.get(resource.plural, namespace, name) is not None:
            raise already_exists(resource, name)
        return _unsaved(new)

    def _new_metadata(self, resource: Resource, namespace: str, body: Json) -> Json:
        given = body.get("metadata") or {}
        named = given.get("namespace") or ""
        if named and named != namespace:
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

    def _new_pod(self, body: Json) -> Json:
        spec = admission.admitted_spec(self.store, body["metadata"]["name"], with_defaults(body.get("spec") or {}))
        return {**body, "spec": spec, "status": first_status(spec, stamp())}

    # Update

    def update(self, resource: Resource, namespace: str, name: str, body: Json, dry_run: bool = False) -> Entry:
        """Replace all but the status."""
        if resource.creates_on_update and self.store.get(resource.plural, namespace, name) is None:
            return self.create(resource, namespace, body, dry_run)
        body = _formed(resource, body)
        old = self._found(resource, namespace, name)
        new = self._checked(resource, name, body, old)
        if "status" in resource.subresources:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        if resource is PODS:
            new["spec"] = self._changed_spec(name, old, new)
        faults = validation.faults(resource, new)
        if resource is PRIORITY_CLASSES:
            faults += validation.priority_class_changes(old, new)
        if faults:
            raise invalid(resource, name, faults)
        if resource.has_generation and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        return self._replace(resource, old, new, dry_run)

    def update_status(self, resource: Resource, namespace: str, name: str, body: Json, dry_run: bool = False) -> Entry:
        """Replace the status, and labels and annotations; the spec is unchanged."""
        body = _formed(resource, body)
        old = self._found(resource, namespace, name)
        new = {**old, "metadata": self._checked(resource, name, body, old)["metadata"]}
        new["metadata"]["finalizers"] = old["metadata"].get("finalizers")
        if new["metadata"]["finalizers"] is None:
            del new["metadata"]["finalizers"]
        new["status"] = body.get("status") or {}
        if resource is PODS:
            new["status"] = {"qosClass": old["status"].get("qosClass"), **new["status"]}
        return self._replace(resource, old, new, dry_run)

    def set_status(self, resource: Resource, namespace: str, name: str, status: Json) -> Entry:
        old = self._found(resource, namespace, name)
        return self.store.update(resource.plural, {**old, "status": status})

    def _found(self, resource: Resource, namespace: str, name: str) -> Json:
        entry = self.store.get(resource.plural, namespace, name)
        if entry is None:
            raise not_found(resource, name)
        return entry.body

    def _checked(self, resource: Resource, name: str, body: Json, old: Json) -> Json:
        """Return the new body with the metadata that clients cannot set."""
        given = body.get("metadata")
        if not isinstance(given, dict) or given.get("name", name) != name:
            shown = given.get("name") if isinstance(given, dict) else None
            raise bad_request(f"the name of the object ({shown}) does not match the name on the URL ({name})")
        kept = old["metadata"]
        check_uid(resource, old, given.get("uid") or "")
        version = given.get("resourceVersion")
        if version and version != kept["resourceVersion"]:
            raise was_modified(resource, name)
        if not version and resource is LEASES:
            text = "Invalid value: 0: must be specified for an update"
            raise invalid(resource, name, [cause("metadata.resourceVersion", validation.INVALID, text)])
        metadata = {key: value for key, value in given.items() if value is not None and key not in _KEPT_METADATA}
        metadata.pop("managedFields", None)
        metadata |= {key: kept[key] for key in _KEPT_METADATA if key in kept}
        metadata["name"] = name
        metadata["resourceVersion"] = kept["resourceVersion"]
        if "namespace" in kept:
            metadata["namespace"] = kept["namespace"]
        for field in ("labels", "annotations", "finalizers", "ownerReferences"):
            if not metadata.get(field):
                metadata.pop(field, None)
        return {"kind": resource.kind, "apiVersion": resource.api_version, **body, "metadata": metadata}

    def _changed_spec(self, name: str, old: Json, new: Json) -> Json:
        spec = with_defaults(new.get("spec") or {})
        for field in ("priority", "preemptionPolicy", "tolerations"):
            if field not in spec and field in old["spec"]:
                spec[field] = old["spec"][field]
        if spec.get("schedulingGates") == []:
            del spec["schedulingGates"]
        if not may_become(old["spec"], spec):
            text = f"Forbidden: pod updates may not change fields other than {CHANGEABLE}"
            raise invalid(PODS, name, [cause("spec", validation.FORBIDDEN, text)])
        return spec

    def _replace(self, resource: Resource, old: Json, new: Json, dry_run: bool) -> Entry:
        if dry_run:
            return _unsaved(new)
        metadata = new["metadata"]
        if "deletionTimestamp" in metadata and not metadata.get("finalizers") and old["metadata"].get("finalizers"):
            grace = metadata.get("deletionGracePeriodSeconds", 0)
            if not grace:
                # The last event shows the object with its finalizer, the answer without it.
                self.store.delete(resource.plural, metadata.get("namespace", ""), metadata["name"])
                return _unsaved(new)
        return self.store.update(resource.plural, new)

    def disrupt(self, pod: Json, reason: str, message: str, phase: str = "") -> None:
        """Record on a pod why it is about to be deleted, and its last phase if it has one."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": stamp(),
            "reason": reason,
            "message": message,
        }
        status = with_condition(pod["status"], condition)
        self.store.update("pods", {**pod, "status": {**status, "phase": phase} if phase else status})

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Json], Json],
        is_status: bool = False,
        dry_run: bool = False,
    ) -> Entry:
        """Apply ``change``, which returns the patched object; a version in it must equal the stored one."""
        old = self._found(resource, namespace, name)
        new = change(old)
        if not isinstance(new.get("metadata"), dict):
            raise bad_request("a patch may not take the metadata away")
        write = self.update_status if is_status else self.update
        return write(resource, namespace, name, new, dry_run)

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
        new, is_over = marked(resource, entry.body, options, time.time())
        if options.dry_run:
            return _unsaved(new), is_over
        if new is not entry.body:
            entry = self.store.update(resource.plural, new)
        # A subscriber of the store may have deleted the object already.
        if is_over and self.store.get(resource.plural, namespace, name) is not None:
            entry = self.store.delete(resource.plural, namespace, name)
        return entry, is_over


def _formed(resource: Resource, body: Json) -> Json:
    """Return a body of the form of its kind, with a spec if its kind has one. Raises ApiError 400."""
    forms.check_object(resource, body)
    if resource is SECRETS:
        return _encoded(body)
    return body if body.get("spec") or resource.plural not in _WITH_SPEC else {**body, "spec": {}}


def _encoded(secret: Json) -> Json:
    """Move plain texts of a client into the encoded data: answers never contain plain texts."""
    texts = secret.get("stringData") or {}
    data = {**(secret.get("data") or {}), **{key: b64encode(text.encode()).decode() for key, text in texts.items()}}
    body = {key: value for key, value in secret.items() if key != "stringData"}
    return {**body, "type": secret.get("type") or "Opaque", **({"data": data} if data else {})}


def check_uid(resource: Resource, stored: Json, wanted: str) -> None:
    """Raises ApiError 409 when another object has the name."""
    metadata = stored["metadata"]
    if wanted and wanted != metadata["uid"]:
        place = "/".join(filter(None, (resource.plural, metadata.get("namespace"), metadata["name"])))
        why = (
            f"StorageError: invalid object, Code: 4, Key: /registry/{place}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {metadata['uid']}"
        )
        raise conflict(resource, metadata["name"], why)


def _unsaved(body: Json) -> Entry:
    return Entry(body, orjson.dumps(body), 0)
