"""What each channel and each server has in common: how large a message may be, and how a busy server says so."""

MESSAGE_BYTES_MAX = 256 * 2**20
"""A job with a configuration for each of many instances is large."""

MESSAGE_SIZES = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
)
"""As options of a gRPC channel or server."""

RETRY_AFTER = "retry-after-ms"
"""Trailing metadata of RESOURCE_EXHAUSTED: nothing has been done, and the call may be repeated after so long."""
