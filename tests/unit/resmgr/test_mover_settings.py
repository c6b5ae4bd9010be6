"""Settings of the mover of host pools."""

from __future__ import annotations

import re

import pytest

from peloton.errors import InvalidSettings
from peloton.scheduling.mover import MoverPolicy
from services.resmgr.settings import MoverSettings, mover_settings
from services.settings import load


def test_numbers_of_the_mover_are_settings() -> None:
    """The defaults come from the policy; each variable sets its own field."""
    assert MoverSettings() == mover_settings(load({}))

    given = {
        "PERIOD_S": "1", "HIGH_PERCENT": "70", "TARGET_PERCENT": "50", "MARKED_PERCENT": "20", "TAKE_AFTER_S": "8",
        "TAKE_AFTER_URGENT_S": "2", "RETURN_AFTER_S": "30", "RETURN_AFTER_MAX_S": "90", "SETTLE_S": "4",
        "HOSTS_AT_A_TIME": "3", "HOSTS_PER_HOUR": "9", "GIVE_UP_S": "100",
    }  # fmt: skip

    found = mover_settings(load({f"PELOTON_MOVER_{name}": text for name, text in given.items()}))

    assert MoverSettings(MoverPolicy(70, 50, 20, 8.0, 2.0, 30.0, 90.0, 4.0, 3, 9), 1.0, 100.0) == found


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("TARGET_PERCENT", "80", "{}=80 (environment), PELOTON_MOVER_HIGH_PERCENT=80 (default): want the first less"),
        ("HIGH_PERCENT", "101", "{}=101 (environment): want whole percent from 1 to 100"),
        ("MARKED_PERCENT", "-1", "{}=-1 (environment): want whole percent from 0 to 100"),
        ("TAKE_AFTER_S", "5", "PELOTON_MOVER_TAKE_AFTER_URGENT_S=15.0 (default), {}=5.0 (environment): want the first"),
        ("TAKE_AFTER_S", "inf", "{}=inf (environment)"),
        ("RETURN_AFTER_S", "0", "{}=0 (environment)"),
        ("RETURN_AFTER_MAX_S", "60", "PELOTON_MOVER_RETURN_AFTER_S=900.0 (default), {}=60.0 (environment)"),
        ("SETTLE_S", "nan", "{}=nan (environment): want seconds from 0 to"),
        ("HOSTS_AT_A_TIME", "0", "{}=0 (environment): want a whole number from 1 to 1,000"),
        ("HOSTS_PER_HOUR", "1001", "{}=1001 (environment)"),
        ("PERIOD_S", "0", "{}=0 (environment): want seconds from 0.1"),
        ("GIVE_UP_S", "nan", "{}=nan (environment): want seconds from 0.1"),
    ],
)
def test_numbers_that_cannot_be_meant_are_refused(name: str, text: str, said: str) -> None:
    """Impossible numbers are rejected with each variable involved and its value."""
    variable = f"PELOTON_MOVER_{name}"
    with pytest.raises(InvalidSettings, match=re.escape(said.format(variable))):
        load({variable: text})
