package peloton.client;

import io.grpc.Metadata;
import io.grpc.Status;
import java.time.Duration;
import java.util.Optional;

/** Decides about the repeats of one call. */
final class Pauses {
  static final Duration FIRST = Duration.ofMillis(250);
  static final Duration LONGEST = Duration.ofSeconds(5);
  static final Metadata.Key<String> RETRY_AFTER =
      Metadata.Key.of("retry-after-ms", Metadata.ASCII_STRING_MARSHALLER);

  private final boolean reads;
  private long until;
  private Duration next;

  Pauses(boolean reads) {
    this.reads = reads;
  }

  /** Return the pause before the next attempt; empty if there is none. */
  Optional<Duration> after(Status status, Metadata trailers) {
    if (next == null) {
      until = System.nanoTime() + PelotonClient.REPEAT_TIME.toNanos();
      next = FIRST;
    }
    Duration pause;
    String millis = trailers == null ? null : trailers.get(RETRY_AFTER);
    if (status.getCode() == Status.Code.RESOURCE_EXHAUSTED && millis != null) {
      pause = Duration.ofMillis(Long.parseLong(millis));
    } else if (status.getCode() == Status.Code.UNAVAILABLE && reads) {
      pause = next;
      next = PelotonClient.shorter(next.multipliedBy(2), LONGEST);
    } else {
      return Optional.empty();
    }
    return System.nanoTime() + pause.toNanos() - until < 0 ? Optional.of(pause) : Optional.empty();
  }
}
