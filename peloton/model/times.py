"""Units of time. Stored times are unix nanoseconds."""

NS_PER_S = 1_000_000_000
