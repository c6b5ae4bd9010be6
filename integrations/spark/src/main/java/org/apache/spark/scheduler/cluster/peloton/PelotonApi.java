package org.apache.spark.scheduler.cluster.peloton;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.Set;

/**
 * The public API of Peloton as JSON over HTTP.
 *
 * <p>Calls are repeated while Peloton is busy or away: all calls of this module have the same effect when they are
 * repeated.
 */
final class PelotonApi {
  static final ObjectMapper JSON = new ObjectMapper();
  static final String JOBS = "peloton.api.v0.job.JobManager";
  static final String TASKS = "peloton.api.v0.task.TaskManager";
  static final String TABLE = "peloton.api.v0.table.JobTableService";
  static final String POOLS = "peloton.api.v0.respool.ResourceManager";

  private static final Duration CALL_TIMEOUT = Duration.ofSeconds(20);
  private static final Duration CONNECT_TIMEOUT = Duration.ofSeconds(5);
  private static final int TRIES = 8;
  private static final long WAIT_MS = 250, WAIT_MAX_MS = 5_000;
  private static final Set<Integer> REPEATED = Set.of(408, 429);
  private static final int SERVER_FAULT = 500;

  /** An answer that is an error of the request, and not of the moment. */
  static final class ApiException extends IOException {
    private final transient JsonNode error;

    ApiException(String message, JsonNode error) {
      super(message);
      this.error = error;
    }

    /** Return whether the error is of this kind, a field of the answer's error. */
    boolean is(String kind) {
      return error.has(kind);
    }
  }

  private final URI api;
  private final HttpClient http =
      HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(CONNECT_TIMEOUT).build();

  PelotonApi(URI api) {
    this.api = api;
  }

  /** Return the answer; an error that it holds, and any status but 200, is an ApiException. */
  JsonNode call(String service, String method, ObjectNode request) throws IOException, InterruptedException {
    HttpRequest post =
        HttpRequest.newBuilder(api.resolve(service + "/" + method))
            .timeout(CALL_TIMEOUT)
            .header("Content-Type", "application/json")
            .POST(BodyPublishers.ofByteArray(JSON.writeValueAsBytes(request)))
            .build();
    for (int tries = 1; ; tries++) {
      String trouble;
      try {
        HttpResponse<byte[]> response = http.send(post, BodyHandlers.ofByteArray());
        if (response.statusCode() < SERVER_FAULT && !REPEATED.contains(response.statusCode())) {
          return answerOf(service + "/" + method, response);
        }
        trouble = "HTTP status " + response.statusCode();
      } catch (ApiException refusal) {
        throw refusal;
      } catch (IOException away) {
        trouble = away.toString();
      }
      if (tries == TRIES) {
        throw new IOException(post.uri() + " has failed " + TRIES + " times, lastly: " + trouble);
      }
      Thread.sleep(Math.min(WAIT_MS << (tries - 1), WAIT_MAX_MS));
    }
  }

  private static JsonNode answerOf(String method, HttpResponse<byte[]> response) throws IOException {
    JsonNode answer = JSON.readTree(response.body());
    if (response.statusCode() != 200) {
      throw new ApiException(method + ": " + answer.path("message").asText("HTTP status " + response.statusCode()), answer);
    }
    JsonNode error = answer.path("error");
    if (!error.isMissingNode()) {
      throw new ApiException(method + ": " + error.findPath("message").asText(error.toString()), error);
    }
    return answer;
  }
}
