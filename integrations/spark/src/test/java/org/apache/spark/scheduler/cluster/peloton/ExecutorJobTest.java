package org.apache.spark.scheduler.cluster.peloton;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class ExecutorJobTest {
  private static final String EXISTS = "{\"error\": {\"alreadyExists\": {\"id\": {\"value\": \"one\"}}}}";
  private static final String INVALID = "{\"error\": {\"invalidConfig\": {\"message\": \"no memory\"}}}";

  private final List<String> creations = new CopyOnWriteArrayList<>();
  private HttpServer server;
  private volatile String answer;

  @BeforeEach
  void start() throws Exception {
    server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.createContext(
        "/api/",
        call -> {
          String request = new String(call.getRequestBody().readAllBytes());
          boolean isCreation = call.getRequestURI().getPath().endsWith("/Create");
          if (isCreation) {
            creations.add(request);
          }
          boolean isLost = isCreation && creations.size() == 1;
          byte[] body = (isCreation ? answer : "{\"id\": {\"value\": \"pool\"}}").getBytes();
          call.sendResponseHeaders(isLost ? 503 : 200, body.length);
          call.getResponseBody().write(body);
          call.close();
        });
    server.start();
  }

  @AfterEach
  void stop() {
    server.stop(0);
  }

  private ExecutorJob create() throws Exception {
    PelotonApi api = new PelotonApi(URI.create("http://127.0.0.1:" + server.getAddress().getPort() + "/api/"));
    ExecutorJob.Description about = new ExecutorJob.Description("words", "team", Map.of(), 0);
    ObjectNode pod = PelotonApi.JSON.createObjectNode();
    return ExecutorJob.create(api, "one", "/batch", about, pod, 2);
  }

  @Test
  void aCreationWhoseAnswerWasLostFindsItsJob() throws Exception {
    answer = EXISTS;
    assertEquals("one", create().id());
    assertEquals(2, creations.size());
    assertEquals(creations.get(0), creations.get(1));
  }

  @Test
  void aRefusedCreationIsAnError() {
    answer = INVALID;
    var refusal = assertThrows(PelotonApi.ApiException.class, this::create);
    assertEquals("peloton.api.v0.job.JobManager/Create: no memory", refusal.getMessage());
  }
}
