package org.apache.spark.scheduler.cluster.peloton;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.scheduler.ExecutorExited;
import org.apache.spark.scheduler.ExecutorLossReason;

/** Tells from the events of a pod's run why its executor is gone, and whether the application is at fault. */
final class LossReasons {
  private static final String EVICTION = "EvictionReason_";
  private static final Pattern STATUS = Pattern.compile("status (\\d+)");
  private static final int TERMINATED = 143;

  private LossReasons() {}

  /** Return why the run ended; empty if it has not. Events are the newest first. */
  static Optional<ExecutorLossReason> of(JsonNode events) {
    for (JsonNode event : events) {
      if (event.path("reason").asText().startsWith(EVICTION)) {
        return Optional.of(exited(TERMINATED, false, event));
      }
    }
    for (JsonNode event : events) {
      switch (event.path("actualState").asText()) {
        case "SUCCEEDED":
          return Optional.of(exited(0, false, event));
        case "FAILED":
          Matcher status = STATUS.matcher(event.path("message").asText());
          return Optional.of(exited(status.find() ? Integer.parseInt(status.group(1)) : 1, true, event));
        case "KILLED", "LOST":
          return Optional.of(exited(TERMINATED, false, event));
        default:
      }
    }
    return Optional.empty();
  }

  private static ExecutorLossReason exited(int code, boolean isByApplication, JsonNode event) {
    String reason = event.path("reason").asText();
    String text = event.path("message").asText() + (reason.isEmpty() ? "" : " (" + reason + ")");
    return new ExecutorExited(code, isByApplication, text.isBlank() ? event.path("actualState").asText() : text);
  }
}
