package org.apache.spark.scheduler.cluster.peloton;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.List;
import java.util.function.IntPredicate;
import org.junit.jupiter.api.Test;

class InstancesTest {
  private static final byte RUNNING = 8, LAUNCHED = 15;
  private static final IntPredicate NONE_SERVES = instance -> false, ALL_SERVE = instance -> true;

  private static byte[] states(int... states) {
    byte[] bytes = new byte[states.length];
    for (int i = 0; i < states.length; i++) {
      bytes[i] = (byte) states[i];
    }
    return bytes;
  }

  private static Instances running(int first, int count) {
    Instances instances = new Instances(first);
    instances.approach(count, NONE_SERVES);
    byte[] states = new byte[first + count];
    Arrays.fill(states, RUNNING);
    instances.observe(states);
    return instances;
  }

  @Test
  void fiveHundredAreOneChange() {
    Instances.Change change = new Instances(0).approach(500, NONE_SERVES);
    assertEquals(new Instances.Change(500, List.of(), List.of()), change);
  }

  @Test
  void ofTheSurplusThoseThatWaitGoFirstAndThoseThatServeStay() {
    Instances instances = new Instances(0);
    instances.approach(5, NONE_SERVES);
    instances.observe(states(RUNNING, LAUNCHED, Instances.PENDING, RUNNING, Instances.PENDING));
    assertEquals(List.of(2, 4), instances.approach(3, i -> i == 0 || i == 3).stopped());
    assertEquals(List.of(1), instances.approach(1, i -> i == 0 || i == 3).stopped());
    assertTrue(instances.approach(1, i -> i == 0 || i == 3).isEmpty(5));
  }

  @Test
  void stoppedInstancesAreStartedAgainBeforeNewOnesAreAdded() {
    Instances instances = running(0, 3);
    assertEquals(List.of(0, 2), instances.stop(List.of(2, 0)).stopped());
    instances.observe(states(Instances.KILLED, RUNNING, RUNNING));
    assertEquals(new Instances.Change(4, List.of(0), List.of()), instances.approach(3, ALL_SERVE));
    assertEquals(3, instances.liveCount());
  }

  @Test
  void anEvictedInstanceCountsAsLiveForItRunsAgain() {
    Instances instances = running(0, 2);
    instances.observe(states(Instances.KILLED, RUNNING));
    assertEquals(2, instances.liveCount());
    instances.observe(states(Instances.PENDING, RUNNING));
    assertEquals(2, instances.liveCount());
  }

  @Test
  void anInstanceThatStaysKilledIsReplaced() {
    Instances instances = running(0, 2);
    for (int poll = 0; poll < Instances.POLLS_AT_REST; poll++) {
      instances.observe(states(Instances.KILLED, RUNNING));
    }
    assertEquals(new Instances.Change(3, List.of(), List.of()), instances.approach(2, ALL_SERVE));
  }

  @Test
  void failedInstancesAreReplacedAndCounted() {
    Instances instances = running(0, 3);
    instances.observe(states(RUNNING, Instances.FAILED, Instances.SUCCEEDED));
    assertEquals(1, instances.failedCount());
    assertEquals(new Instances.Change(5, List.of(), List.of()), instances.approach(3, ALL_SERVE));
  }

  @Test
  void theDriverAndExecutorsOfItsPastRunsAreNotTouched() {
    Instances instances = running(4, 2);
    assertEquals(List.of(4, 5), instances.stop(List.of(0, 1, 4, 5)).stopped());
    assertEquals(0, instances.liveCount());
  }
}
