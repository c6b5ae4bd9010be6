package org.apache.spark.scheduler.cluster.peloton;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;

class ExecutorPodTest {
  private static JsonNode config(int heapMib, String... settings) {
    SparkConf conf = new SparkConf(false);
    for (int i = 0; i < settings.length; i += 2) {
      conf.set(settings[i], settings[i + 1]);
    }
    return new ExecutorPod(conf, heapMib).config("spark://CoarseGrainedScheduler@driver:1", "app-1", 2, false);
  }

  private static String script(JsonNode config) {
    return config.path("command").path("value").asText();
  }

  @Test
  void memoryIsHeapAndOverheadAndWhatLiesOutside() {
    assertEquals(1024 + 384, config(1024).at("/resource/memLimitMb").asInt());
    assertEquals(8192 + 819, config(8192).at("/resource/memLimitMb").asInt());
    assertEquals(1024 + 100, config(1024, "spark.executor.memoryOverhead", "100m").at("/resource/memLimitMb").asInt());
    JsonNode all =
        config(
            1024,
            "spark.memory.offHeap.enabled", "true",
            "spark.memory.offHeap.size", "512m",
            "spark.executor.pyspark.memory", "256m");
    assertEquals(1024 + 384 + 512 + 256, all.at("/resource/memLimitMb").asInt());
  }

  @Test
  void coresAreCpusUnlessThePodAsksForOther() {
    assertEquals(4.0, config(512, "spark.executor.cores", "4").at("/resource/cpuLimit").asDouble());
    JsonNode half = config(512, "spark.executor.cores", "4", "spark.peloton.executor.cpus", "0.5");
    assertEquals(0.5, half.at("/resource/cpuLimit").asDouble());
    assertTrue(script(half).contains("--cores 4"));
  }

  @Test
  void theNoticeBecomesOneSignalThatSparkKnows() {
    assertTrue(script(config(512)).contains("kill -HUP \"$pid\""));
    assertTrue(script(config(512, "spark.decommission.enabled", "true")).contains("kill -PWR \"$pid\""));
    assertTrue(script(config(512)).contains("(trap '' TERM; exec \"$java\""));
  }

  @Test
  void settingsThatAnExecutorNeedsAtItsStartAreQuoted() {
    String script = script(config(512, "spark.rpc.message.maxSize", "64", "spark.app.name", "a", "spark.network.a", "it's"));
    assertFalse(script.contains("spark.app.name"), script);
    assertTrue(script.contains("'-Dspark.rpc.message.maxSize=64'"), script);
    assertTrue(script.contains("'-Dspark.network.a=it'\\''s'"), script);
  }

  @Test
  void constraintsAreLabelsOfHosts() {
    JsonNode config = config(512, "spark.peloton.executor.constraints", "rack=r1, zone=a");
    JsonNode each = config.at("/constraint/andConstraint/constraints");
    assertEquals(2, each.size());
    assertEquals("zone", each.at("/1/labelConstraint/label/key").asText());
    assertThrows(
        IllegalArgumentException.class, () -> config(512, "spark.peloton.executor.constraints", "rack:r1"));
  }

  @Test
  void anImageBringsItsOwnSpark() {
    JsonNode config = config(512, "spark.peloton.container.image", "spark:4", "spark.executorEnv.A", "b");
    assertEquals("spark:4", config.at("/container/mesos/image/docker/name").asText());
    JsonNode variables = config.at("/command/environment/variables");
    assertEquals("/opt/spark", variables.at("/0/value").asText());
    assertEquals("A", variables.at("/4/name").asText());
  }

  @Test
  void aFailedExecutorIsReplacedByTheDriverAndALostOneByPeloton() {
    assertEquals(1, config(512).at("/restartPolicy/maxFailures").asInt());
  }

  @Test
  void revocableIsAChoice() {
    assertFalse(config(512).path("revocable").asBoolean());
    assertTrue(config(512, "spark.peloton.executor.revocable", "true").path("revocable").asBoolean());
  }
}
