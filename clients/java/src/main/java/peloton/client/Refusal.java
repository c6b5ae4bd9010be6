package peloton.client;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import com.google.rpc.Status;
import io.grpc.protobuf.StatusProto;

/** Reads the reason of a refused call, as in docs/errors.md. */
public final class Refusal {
  private static final String DOMAIN = "peloton";

  private Refusal() {}

  /**
   * Return the reason of an error and its metadata: the object, the rule and the numbers. The reason is empty for errors
   * that Peloton has not given.
   */
  public static ErrorInfo of(Throwable error) {
    Status status = StatusProto.fromThrowable(error);
    if (status != null) {
      for (Any detail : status.getDetailsList()) {
        if (detail.is(ErrorInfo.class)) {
          try {
            ErrorInfo found = detail.unpack(ErrorInfo.class);
            if (found.getDomain().equals(DOMAIN)) {
              return found;
            }
          } catch (InvalidProtocolBufferException malformed) {
            // A detail that cannot be read gives no reason.
          }
        }
      }
    }
    return ErrorInfo.getDefaultInstance();
  }
}
