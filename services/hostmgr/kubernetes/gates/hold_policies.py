"""Admission policies of owners that are held suspended: pure functions that return the objects of Kubernetes.

For each place of the flag there are three policies. One suspends new owners; one keeps them so when their users set the
flag, and notes what these want; and one rejects what would pass both. Jobs have policies of their own, which also mark
their templates: the gate leaves the pods of held owners alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.external.gate import ADMITTED_AT, FITS_ON
from services.hostmgr.kubernetes.gates.building import (
    IS_GRANTED,
    IS_PLACED_BY_PELOTON,
    Options,
    bind,
    bind_twice,
    has_all,
    is_kept,
    make_policy,
    of_objects,
    pool_variables,
)
from services.hostmgr.kubernetes.pods.launches import BY_GATE, BY_OWNER, BY_SUSPEND, HELD, RUN
from services.hostmgr.kubernetes.suspend.held_owner import ADMISSIONS, ADMITTED_AS, PAUSED
from services.hostmgr.kubernetes.suspend.owner_kinds import OwnerKind, holdable_cel

HOLD = "peloton-hold-"
"""Prefix of the names of these policies."""
_IS_CONTROLLER = "has(o.controller) && o.controller"
_IS_CRON_JOB = "o.kind == 'CronJob' && o.apiVersion.startsWith('batch/')"


def make_hold_policies(options: Options) -> list[Json]:
    return [policy for name, kinds in _groups(options) for policy in _policies_of(name, kinds, options)]


def make_hold_bindings(options: Options) -> list[Json]:
    made = []
    for name, _ in _groups(options):
        made += bind_twice("MutatingAdmissionPolicyBinding", name, options, "owners")
        made.append(bind("MutatingAdmissionPolicyBinding", f"{name}-again", "", of_objects(options), options))
        made += bind_twice("ValidatingAdmissionPolicyBinding", f"{name}-change", options, "owners")
    return made


def is_pod_of_held(kinds: Sequence[OwnerKind]) -> str:
    """Return the expression that is true for a new pod of a held owner, created by the controller of its kind."""
    marks = "object.metadata.annotations"
    is_marked = f"has({marks}) && '{HELD}' in {marks} && {marks}['{HELD}'] == '{BY_SUSPEND}'"
    jobs = [f"({test} && {is_marked})" for test in _by_operators([kind for kind in kinds if kind.is_job])]
    return _has_controller([*jobs, *_by_operators(_others(kinds))])


def _groups(options: Options) -> Iterator[tuple[str, list[OwnerKind]]]:
    """Yield the kinds whose policies are the same, with the name of these."""
    groups: dict[tuple[bool, str], list[OwnerKind]] = {}
    for kind in options.owners:
        groups.setdefault((kind.is_job, kind.suspend_path), []).append(kind)
    for (is_job, path), kinds in groups.items():
        yield f"{HOLD}{'jobs' if is_job else path.replace('.', '-').lower()}", kinds


def _others(kinds: Sequence[OwnerKind]) -> list[OwnerKind]:
    return [kind for kind in kinds if not kind.is_job]


def _policies_of(name: str, kinds: Sequence[OwnerKind], options: Options) -> Iterator[Json]:
    rules = [{"apiGroups": [kind.group], "apiVersions": [kind.version], "resources": [kind.plural]} for kind in kinds]
    path = kinds[0].suspend_path
    is_job = kinds[0].is_job
    yield _hold_policy(name, rules, kinds, options)
    yield _keep_policy(f"{name}-again", rules, path, options)
    yield _change_policy(f"{name}-change", rules, path, is_job, options)


def _hold_policy(name: str, rules: list[Json], kinds: Sequence[OwnerKind], options: Options) -> Json:
    """Return the policy that suspends new owners. Children of held owners are left alone; so are Jobs of other
    controllers, which might unsuspend them: their pods are gated."""
    path, is_job = kinds[0].suspend_path, kinds[0].is_job
    marks = f"'{HELD}': '{BY_SUSPEND}', '{PAUSED}': variables.isPaused ? 'true' : 'false'"
    meta = f"metadata: Object.metadata{{labels: {{'{options.pool}': variables.pool}}, annotations: {{{marks}}}}}"
    held = f"Object{{{meta}, {_set(path, _template_mark(BY_SUSPEND) if is_job else '')}}}"
    child = f"Object{{metadata: Object.metadata{{annotations: {{'{HELD}': '{BY_OWNER}'}}}}}}"
    variables = [
        *pool_variables(options),
        {"name": "isOfHeld", "expression": _has_controller(_by_operators(_others(options.owners)))},
        {"name": "isPaused", "expression": _is_paused(path)},
    ]
    if is_job:
        mark = _template_mark(f"variables.isOfHeld ? '{BY_SUSPEND}' : '{BY_GATE}'", is_literal=False)
        child = f"{child[:-1]}, spec: Object.spec{{{mark}}}}}"
        variables.append({"name": "isChild", "expression": _has_controller([f"!({_IS_CRON_JOB})"])})
    which = "variables.isChild" if is_job else "variables.isOfHeld"
    placed = IS_PLACED_BY_PELOTON.replace("object.spec.", "object.spec.template.spec.")
    conditions = [{"name": f"can-be-held-{number}", "expression": _can_hold(kind)} for number, kind in enumerate(kinds)]
    if is_job:
        conditions.append({"name": "is-not-placed-by-peloton", "expression": f"!{placed}"})
    return make_policy(
        "MutatingAdmissionPolicy",
        name,
        options,
        [{**rule, "operations": ["CREATE"]} for rule in rules],
        matchConditions=conditions,
        variables=variables,
        reinvocationPolicy="IfNeeded",
        mutations=[_apply(f"{which} ? {child} : {held}")],
    )


def _keep_policy(name: str, rules: list[Json], path: str, options: Options) -> Json:
    """Return the policy that keeps an owner suspended when a user sets the flag, and records the wish of the user."""
    old, new = _is_suspended("oldObject", path), _is_suspended("object", path)
    change = (
        f"Object{{metadata: Object.metadata{{annotations: {{'{PAUSED}': {new} ? 'true' : 'false'}}}}, {_set(path)}}}"
    )
    return make_policy(
        "MutatingAdmissionPolicy",
        name,
        options,
        [{**rule, "operations": ["UPDATE"]} for rule in rules],
        matchConditions=[
            {"name": "is-held", "expression": _is_held("oldObject")},
            {"name": "sets-the-flag", "expression": f"{old} != {new}"},
            {"name": "is-not-granted", "expression": f"!{IS_GRANTED}"},
        ],
        reinvocationPolicy="IfNeeded",
        mutations=[_apply(change)],
    )


def _change_policy(name: str, rules: list[Json], path: str, is_job: bool, options: Options) -> Json:
    old, new = _is_suspended("oldObject", path), _is_suspended("object", path)
    created = f"!{_is_held('object')} || {new}"
    changed = f"!{_is_held('oldObject')} || !{old} || {new} || {IS_GRANTED}"
    kept = [is_kept("metadata.labels", options.pool)]
    kept += [is_kept("metadata.annotations", key) for key in (HELD, ADMITTED_AS, ADMISSIONS, RUN, FITS_ON, ADMITTED_AT)]
    if is_job:
        kept.append(is_kept("spec.template.metadata.annotations", HELD))
    message = f"{options.pool} and Peloton's annotations of an owner are not changed after its creation"
    return make_policy(
        "ValidatingAdmissionPolicy",
        name,
        options,
        [{**rule, "operations": ["CREATE", "UPDATE"]} for rule in rules],
        validations=[
            {
                "expression": f"request.operation == 'CREATE' ? ({created}) : ({changed})",
                "message": "only Peloton unsuspends what it holds: it waits until its pool admits it",
                "reason": "Forbidden",
            },
            {
                "expression": f"request.operation == 'CREATE' || ({' && '.join(kept)}) || {IS_GRANTED}",
                "message": message,
                "reason": "Forbidden",
            },
        ],
    )


# -- expressions -------------------------------------------------------------------------------------------------------


def _apply(expression: str) -> Json:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def _is_suspended(name: str, path: str) -> str:
    return f"({has_all(name, path)} && {name}.{path})"


def _can_hold(kind: OwnerKind) -> str:
    """Return the expression that is true for objects of other kinds, and for those whose controller respects the
    flag."""
    return f"request.kind.kind != '{kind.kind}' || request.kind.version != '{kind.version}' || {holdable_cel(kind)}"


def _is_paused(path: str) -> str:
    """Return the expression that is true if the user wants a new owner suspended. On an owner that the policy has
    already changed, it is the recorded wish."""
    marks = "object.metadata.annotations"
    return (
        f"{_is_held('object')} ? '{PAUSED}' in {marks} && {marks}['{PAUSED}'] == 'true' "
        f": {_is_suspended('object', path)}"
    )


def _set(path: str, more: str = "") -> str:
    """Return the fields of an apply configuration that suspend an owner."""
    *above, last = path.split(".")
    fields = f"{last}: true{', ' if more else ''}{more}"
    for count in range(len(above), 0, -1):
        fields = f"{above[count - 1]}: Object.{'.'.join(above[:count])}{{{fields}}}"
    return fields


def _template_mark(value: str, is_literal: bool = True) -> str:
    text = f"'{value}'" if is_literal else value
    return (
        "template: Object.spec.template{metadata: Object.spec.template.metadata{"
        f"annotations: {{'{HELD}': {text}}}}}}}"
    )


def _is_held(name: str) -> str:
    marks = f"{name}.metadata.annotations"
    return f"(has({marks}) && '{HELD}' in {marks} && {marks}['{HELD}'] == '{BY_SUSPEND}')"


def _has_controller(tests: Sequence[str]) -> str:
    """Return the expression that is true for objects with a controller ``o`` for which one of the tests is true."""
    if not tests:
        return "false"
    return (
        "(has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists("
        f"o, {_IS_CONTROLLER} && ({' || '.join(tests)})))"
    )


def _by_operators(kinds: Sequence[OwnerKind]) -> list[str]:
    """Return the expressions that are true for a controller of a held kind whose operator makes the request: only the
    operator may write the status of all objects of its kind."""
    return [
        f"(o.kind == '{kind}' && o.apiVersion.startsWith('{group}/') && authorizer.group('{group}')"
        f".resource('{plural}').subresource('status').check('update').allowed())"
        for group, kind, plural in dict.fromkeys((one.group, one.kind, one.plural) for one in kinds)
    ]
