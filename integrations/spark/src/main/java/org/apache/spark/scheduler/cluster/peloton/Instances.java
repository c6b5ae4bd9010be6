package org.apache.spark.scheduler.cluster.peloton;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.IntPredicate;

/**
 * The instances of a job that are executors of one driver, and which of them to add, start or stop.
 *
 * <p>Not thread safe: one thread reads and changes it.
 */
final class Instances {
  /** Numbers of task states in the API. */
  static final byte NONE = 0, INITIALIZED = 1, PENDING = 2, SUCCEEDED = 9, FAILED = 10, LOST = 11, KILLED = 14;

  /** A run that ended KILLED or LOST runs again; an instance that shows such a state for so many polls does not. */
  static final int POLLS_AT_REST = 30;

  /**
   * A change of the job: the instances that it has, those to start again, and those to stop. The methods that return
   * one have noted it as done.
   */
  record Change(int count, List<Integer> started, List<Integer> stopped) {
    boolean isEmpty(int before) {
      return count == before && started.isEmpty() && stopped.isEmpty();
    }
  }

  private final int first;
  private int count;
  private byte[] states = {};
  private final Set<Integer> stopped = new HashSet<>();
  private final Set<Integer> ended = new HashSet<>();
  private int[] pollsAtRest = {};

  /** @param first the first instance of this driver; those before it are the driver, and executors of its past runs */
  Instances(int first) {
    this.first = first;
    this.count = first;
  }

  int first() {
    return first;
  }

  int count() {
    return count;
  }

  /** Return how many instances have failed: each counts once, for it does not run again. */
  int failedCount() {
    int failed = 0;
    for (int i = first; i < count; i++) {
      failed += stateOf(i) == FAILED && !stopped.contains(i) ? 1 : 0;
    }
    return failed;
  }

  /** Take in the states of instances 0 and up, as the API reported them. */
  void observe(byte[] reported) {
    states = reported;
    pollsAtRest = Arrays.copyOf(pollsAtRest, count);
    for (int i = first; i < count; i++) {
      byte state = stateOf(i);
      boolean rests = state == KILLED || state == LOST;
      pollsAtRest[i] = rests ? pollsAtRest[i] + 1 : 0;
      if (state == SUCCEEDED || state == FAILED || pollsAtRest[i] >= POLLS_AT_REST) {
        ended.add(i);
      } else if (!rests) {
        ended.remove(i);
      }
    }
  }

  int liveCount() {
    int live = 0;
    for (int i = first; i < count; i++) {
      live += isLive(i) ? 1 : 0;
    }
    return live;
  }

  /** Stop these, whatever the target is. */
  Change stop(List<Integer> instances) {
    List<Integer> stopping = instances.stream().filter(this::isLive).sorted().toList();
    stopped.addAll(stopping);
    return new Change(count, List.of(), stopping);
  }

  /**
   * Come closer to so many live instances. Stopped ones that have ended start again before new ones are added. Those
   * that serve as executors stay until Spark names them; of the others those that wait for a host go first.
   */
  Change approach(int target, IntPredicate isRegistered) {
    int missing = target - liveCount();
    if (missing >= 0) {
      return grow(missing);
    }
    List<Integer> stopping = new ArrayList<>();
    for (boolean waits : new boolean[] {true, false}) {
      for (int i = count - 1; i >= first && stopping.size() < -missing; i--) {
        if (isLive(i) && !isRegistered.test(i) && isWaiting(i) == waits) {
          stopping.add(i);
        }
      }
    }
    return stop(stopping);
  }

  private Change grow(int missing) {
    List<Integer> starting = new ArrayList<>();
    for (int i = first; i < count && starting.size() < missing; i++) {
      if (stopped.contains(i) && hasEnded(stateOf(i))) {
        starting.add(i);
      }
    }
    starting.forEach(stopped::remove);
    starting.forEach(ended::remove);
    starting.forEach(i -> pollsAtRest[i] = 0);
    count = Math.min(count + missing - starting.size(), ExecutorId.INSTANCES_MAX);
    return new Change(count, starting, List.of());
  }

  private boolean isLive(int instance) {
    return instance >= first && instance < count && !stopped.contains(instance) && !ended.contains(instance);
  }

  private static boolean hasEnded(byte state) {
    return state == SUCCEEDED || state == FAILED || state == LOST || state == KILLED;
  }

  private boolean isWaiting(int instance) {
    byte state = stateOf(instance);
    return state == NONE || state == INITIALIZED || state == PENDING;
  }

  private byte stateOf(int instance) {
    return instance < states.length ? states[instance] : NONE;
  }
}
