package org.apache.spark.scheduler.cluster.peloton;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class MasterUrlTest {
  @ParameterizedTest
  @ValueSource(strings = {"peloton://web:5398/batch/etl", "spark+peloton://web:5398/batch/etl"})
  void bothSchemesNameTheApiAndThePool(String text) {
    assertTrue(new PelotonClusterManager().canCreate(text));
    assertEquals(new MasterUrl(URI.create("http://web:5398/api/"), "/batch/etl"), MasterUrl.parse(text));
  }

  @ParameterizedTest
  @ValueSource(strings = {"local[2]", "spark://web:7077", "yarn", "k8s://https://web:443"})
  void otherMastersAreLeftToTheirManagers(String text) {
    assertFalse(new PelotonClusterManager().canCreate(text));
  }

  @ParameterizedTest
  @ValueSource(strings = {"peloton://web:5398", "peloton://web:5398/", "peloton://web/pool", "peloton:///pool", "peloton://a b/c"})
  void aUrlWithoutPortOrPoolIsRefused(String text) {
    Exception refused = assertThrows(IllegalArgumentException.class, () -> MasterUrl.parse(text));
    assertTrue(refused.getMessage().startsWith("master " + text + " is not of the form"), refused.getMessage());
  }

  @Test
  void executorIdsAreIntegersThatHoldRunAndInstance() {
    ExecutorId third = new ExecutorId(3, 99_999);
    assertEquals("399999", third.toString());
    assertEquals(third, ExecutorId.parse("399999"));
    assertThrows(ArithmeticException.class, () -> new ExecutorId(30_000, 0).toString());
  }
}
