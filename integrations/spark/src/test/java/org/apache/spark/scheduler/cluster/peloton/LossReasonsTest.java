package org.apache.spark.scheduler.cluster.peloton;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.scheduler.ExecutorExited;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class LossReasonsTest {
  private static JsonNode events(String... objects) throws Exception {
    return PelotonApi.JSON.readTree("[" + String.join(",", objects).replace('\'', '"') + "]");
  }

  private static ExecutorExited reasonOf(JsonNode events) {
    return (ExecutorExited) LossReasons.of(events).orElseThrow();
  }

  @Test
  void preemptionIsNotTheFaultOfTheApplicationHoweverTheProcessEnds() throws Exception {
    ExecutorExited reason =
        reasonOf(
            events(
                "{'actualState': 'FAILED', 'message': 'Command exited with status 143'}",
                "{'actualState': 'PREEMPTING', 'reason': 'EvictionReason_PREEMPTION', 'message': 'for job a of /b'}",
                "{'actualState': 'RUNNING'}"));
    assertEquals(new ExecutorExited(143, false, "for job a of /b (EvictionReason_PREEMPTION)"), reason);
  }

  @ParameterizedTest
  @CsvSource({"KILLED,false", "LOST,false", "SUCCEEDED,false", "FAILED,true"})
  void failuresAloneCount(String state, boolean counts) throws Exception {
    assertEquals(counts, reasonOf(events("{'actualState': '" + state + "'}")).exitCausedByApp());
  }

  @Test
  void theStatusOfTheProcessIsTakenFromTheMessage() throws Exception {
    assertEquals(52, reasonOf(events("{'actualState': 'FAILED', 'message': 'Command exited with status 52'}")).exitCode());
  }

  @Test
  void aRunThatHasNotEndedHasNoReasonYet() throws Exception {
    assertTrue(LossReasons.of(events("{'actualState': 'RUNNING', 'goalState': 'SUCCEEDED'}")).isEmpty());
    assertTrue(LossReasons.of(events()).isEmpty());
  }
}
