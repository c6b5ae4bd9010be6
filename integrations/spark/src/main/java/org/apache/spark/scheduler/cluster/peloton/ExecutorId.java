package org.apache.spark.scheduler.cluster.peloton;

/**
 * The pod of an executor, and the number that Spark knows it by.
 *
 * <p>Spark takes executor ids for integers. A run of a pod is one executor, so the number is made of both: the executor
 * computes it from its environment, and the driver finds the pod without asking.
 *
 * @param round counts the runs of an instance, over all jobs of one application
 */
record ExecutorId(int round, int instance) {
  /** The most instances that a job may have, and so the factor of rounds. */
  static final int INSTANCES_MAX = 100_000;

  static ExecutorId parse(String text) {
    int number = Integer.parseInt(text);
    return new ExecutorId(number / INSTANCES_MAX, number % INSTANCES_MAX);
  }

  @Override
  public String toString() {
    return Integer.toString(Math.addExact(Math.multiplyExact(round, INSTANCES_MAX), instance));
  }
}
