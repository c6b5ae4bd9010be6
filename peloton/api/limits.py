"""How large a message between our processes may be: one bound for every channel and every server."""

MESSAGE_BYTES_MAX = 256 * 2**20
"""A job with a configuration for each of many instances is large."""

MESSAGE_SIZES = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
)
"""As options of a gRPC channel or server."""
