package org.apache.spark.scheduler.cluster.peloton;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.List;
import java.util.Map;

/**
 * The job whose instances are executors: one of their own in client mode, and in cluster mode that of the driver, which
 * is its instance 0.
 *
 * <p>Each method is one call, whatever the number of instances.
 */
final class ExecutorJob {
  /** Of a message of configurations, which may have 4 MiB. */
  private static final int ADDED_MAX = 1_000;

  private static final String TERMINAL = "terminal state";

  private final PelotonApi api;
  private final String id;
  private final ObjectNode pod;
  private final boolean isOfDriver;

  private ExecutorJob(PelotonApi api, String id, ObjectNode pod, boolean isOfDriver) {
    this.api = api;
    this.id = id;
    this.pod = pod;
    this.isOfDriver = isOfDriver;
  }

  String id() {
    return id;
  }

  /** What a new job is besides its pods. */
  record Description(String name, String team, Map<String, String> labels, int priority) {}

  /** Create a job of so many executors in the pool. A repeat with the same id finds the job of the try before. */
  static ExecutorJob create(PelotonApi api, String id, String pool, Description about, ObjectNode pod, int count)
      throws IOException, InterruptedException {
    ObjectNode request = PelotonApi.JSON.createObjectNode();
    request.putObject("id").put("value", id);
    ObjectNode config = request.putObject("config");
    config.put("name", about.name()).put("owningTeam", about.team()).put("instanceCount", count);
    config.putObject("respoolID").put("value", poolId(api, pool));
    config.putObject("sla").put("preemptible", true).put("priority", about.priority());
    ArrayNode labels = config.putArray("labels");
    about.labels().forEach((key, value) -> labels.addObject().put("key", key).put("value", value));
    config.set("defaultConfig", pod);
    try {
      api.call(PelotonApi.JOBS, "Create", request);
    } catch (PelotonApi.ApiException refusal) {
      if (!refusal.is("alreadyExists")) {
        throw refusal;
      }
    }
    return new ExecutorJob(api, id, pod, false);
  }

  /** Take the job of the driver, which has created it. */
  static ExecutorJob ofDriver(PelotonApi api, String id, ObjectNode pod) {
    return new ExecutorJob(api, id, pod, true);
  }

  private static String poolId(PelotonApi api, String path) throws IOException, InterruptedException {
    ObjectNode request = PelotonApi.JSON.createObjectNode();
    request.putObject("path").put("value", path);
    return api.call(PelotonApi.POOLS, "LookupResourcePoolID", request).path("id").path("value").asText();
  }

  int instanceCount() throws IOException, InterruptedException {
    return config().path("instanceCount").asInt();
  }

  private ObjectNode config() throws IOException, InterruptedException {
    return (ObjectNode) api.call(PelotonApi.JOBS, "Get", identified()).path("jobInfo").path("config");
  }

  /** Make the job larger. Returns false when it has ended, and takes no more instances. */
  boolean grow(int before, int count) throws IOException, InterruptedException {
    ObjectNode config = config();
    config.remove(List.of("changeLog", "instanceConfig"));
    try {
      for (int from = before; from < count; from += ADDED_MAX) {
        int to = isOfDriver ? Math.min(from + ADDED_MAX, count) : count;
        config.put("instanceCount", to);
        if (isOfDriver) {
          ObjectNode added = config.putObject("instanceConfig");
          for (int instance = from; instance < to; instance++) {
            added.set(Integer.toString(instance), pod);
          }
        }
        ObjectNode request = identified();
        request.set("config", config);
        api.call(PelotonApi.JOBS, "Update", request);
        if (to == count) {
          break;
        }
      }
      return true;
    } catch (PelotonApi.ApiException refusal) {
      if (refusal.getMessage().contains(TERMINAL)) {
        return false;
      }
      throw refusal;
    }
  }

  void start(List<Integer> instances) throws IOException, InterruptedException {
    api.call(PelotonApi.TASKS, "Start", ranged(instances));
  }

  void stop(List<Integer> instances) throws IOException, InterruptedException {
    api.call(PelotonApi.TASKS, "Stop", ranged(instances));
  }

  /** Stop the whole job. */
  void stop() throws IOException, InterruptedException {
    ObjectNode request = PelotonApi.JSON.createObjectNode();
    request.putObject("jobId").put("value", id);
    api.call(PelotonApi.TASKS, "Stop", request);
  }

  /** Return the state of each instance, a byte each. */
  byte[] states() throws IOException, InterruptedException {
    JsonNode states = api.call(PelotonApi.TABLE, "GetInstanceStates", identified()).path("states");
    return states.isMissingNode() ? new byte[0] : states.binaryValue();
  }

  /** Return the events of a run of an instance, the newest first. */
  JsonNode events(int instance, int run) throws IOException, InterruptedException {
    ObjectNode request = PelotonApi.JSON.createObjectNode();
    request.putObject("jobId").put("value", id);
    request.put("instanceId", instance).put("runId", id + "-" + instance + "-" + run);
    return api.call(PelotonApi.TASKS, "GetPodEvents", request).path("result");
  }

  private ObjectNode identified() {
    ObjectNode request = PelotonApi.JSON.createObjectNode();
    request.putObject("id").put("value", id);
    return request;
  }

  private ObjectNode ranged(List<Integer> instances) {
    ObjectNode request = PelotonApi.JSON.createObjectNode();
    request.putObject("jobId").put("value", id);
    ArrayNode ranges = request.putArray("ranges");
    ObjectNode last = null;
    for (int instance : instances) {
      if (last == null || last.path("to").asInt() != instance) {
        last = ranges.addObject().put("from", instance);
      }
      last.put("to", instance + 1);
    }
    return request;
  }
}
