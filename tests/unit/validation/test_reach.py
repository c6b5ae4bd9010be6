"""Reach of the default's values, determined while instances arrive one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peloton.api.v0.task import task_pb2
from services.api.validation import Reach

FIELDS = ("command", "resource", "constraint")
CARRIES = {name: (lambda pod, name=name: pod.HasField(name)) for name in FIELDS}


@given(
    st.dictionaries(st.integers(0, 12), st.sets(st.sampled_from(FIELDS)), max_size=13),
    st.integers(0, 4),
    st.integers(0, 13),
)
def test_the_first_that_has_the_default(overrides: dict[int, set[str]], start: int, stop: int) -> None:
    """The result for each field is the lowest validated instance whose override, if any, does not have the field."""
    configs = {}
    for instance, names in overrides.items():
        configs[instance] = task_pb2.TaskConfig()
        for name in names:
            getattr(configs[instance], name).SetInParent()
    evaluated = range(start, stop)

    reach = Reach(evaluated, CARRIES.values())
    for instance in sorted(configs):
        if instance in evaluated:
            reach.add(instance, configs[instance])
    reach.finish()

    plain = [i for i in evaluated if i not in overrides]
    assert reach.plain == next(iter(plain), None)
    assert reach.plain_but_0 == next((i for i in plain if i), None)
    for name, carries in CARRIES.items():
        first = next((i for i in evaluated if name not in overrides.get(i, ())), None)
        assert reach.first(carries) == first
        assert reach.config_at(carries) is (None if first is None else configs.get(first))
