"""Offer constraints: which agents a framework wants to see in a role, judged by attributes and hostname."""

from __future__ import annotations

import re

from services.minicluster.hosts import HostSpec
from services.minicluster.resources import Json


def match(constraints: Json, role: str, spec: HostSpec) -> bool:
    """True when any group of the role holds; a role without constraints sees every agent."""
    groups = constraints.get("role_constraints", {}).get(role)
    if groups is None:
        return True
    return any(
        all(_holds(item, spec) for item in group.get("attribute_constraints", ())) for group in groups.get("groups", ())
    )


def _holds(constraint: Json, spec: HostSpec) -> bool:
    selector = constraint.get("selector", {})
    value: str | float | None
    if "attribute_name" in selector:
        value = spec.attributes.get(selector["attribute_name"])
    elif selector.get("pseudoattribute_type") == "HOSTNAME":
        value = spec.name
    else:
        return False
    predicate = constraint.get("predicate", {})
    if "exists" in predicate:
        return value is not None
    if "not_exists" in predicate:
        return value is None
    if "text_equals" in predicate:
        return value == predicate["text_equals"].get("value") if isinstance(value, str) else value is not None
    if "text_not_equals" in predicate:
        return value != predicate["text_not_equals"].get("value") if isinstance(value, str) else True
    if "text_matches" in predicate:
        if not isinstance(value, str):
            return value is not None
        return re.fullmatch(predicate["text_matches"].get("regex", ""), value) is not None
    if "text_not_matches" in predicate:
        if not isinstance(value, str):
            return True
        return re.fullmatch(predicate["text_not_matches"].get("regex", ""), value) is None
    return False
