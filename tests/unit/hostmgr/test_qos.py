"""The load of a host for the QoS controller."""

from __future__ import annotations

from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from peloton.scheduling.qos import Use
from services.hostmgr.driver import RegisteredHost, UseSample
from services.hostmgr.host_samples import load_of
from services.hostmgr.host_use import HostUse, next_use


def test_what_others_hold_is_part_of_the_machine() -> None:
    """The usage of other pods is measured, too: a host on which they are busy is not hot because of them."""
    ours, theirs = Resources.of(1, 1_000), Resources.of(3, 2_000)
    host = RegisteredHost(
        "id", Hostname("h"), "", ours, Resources.of(0.5), {}, Resources.of(0.25), held_by_others=theirs
    )
    use = HostUse()
    for second in (0.0, 10.0):
        use = next_use(use, [UseSample("theirs", None, 2.5 * second, second, 1_500)])

    load = load_of(host, use)

    assert (Use(4_000, 3_000), Use(2_500, 1_500)) == (load.total, load.used)
    assert (500, 250) == (load.slack, load.held)
