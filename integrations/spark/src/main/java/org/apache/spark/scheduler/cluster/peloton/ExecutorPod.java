package org.apache.spark.scheduler.cluster.peloton;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.launcher.JavaModuleOptions;
import scala.Tuple2;

/** The configuration of a pod that runs an executor, from the settings of Spark. */
final class ExecutorPod {
  private static final long OVERHEAD_MIN_MIB = 384;
  private static final double OVERHEAD_FACTOR = 0.1;

  /** A run that was lost with its host is repeated; after one that failed the driver decides. */
  private static final int FAILURES_MAX = 1;

  /** The signal by which an executor is decommissioned. */
  static final String DECOMMISSION = "PWR";

  private static final String IMAGE_SPARK_HOME = "/opt/spark";

  /**
   * Starts the executor, and makes one signal of its own of SIGTERM, the notice of an eviction. The executor ignores
   * SIGTERM, which some clusters send to all processes of a pod: Spark would die of the second one that it gets. The
   * status after a notice is never 0: the pod of an evicted executor has to run again.
   */
  private static final String SCRIPT =
      String.join(
          "\n",
          "run=${MESOS_TASK_ID:-${HOSTNAME:-$(hostname)}}; run=${run##*-}",
          "id=$(( (run + SPARK_PELOTON_ROUNDS) * " + ExecutorId.INSTANCES_MAX + " + PELOTON_INSTANCE_ID ))",
          "host=$(hostname -i 2>/dev/null | cut -d' ' -f1)",
          "case \"$host\" in ''|127.*|::1) host=$(hostname -f);; esac",
          "export SPARK_LOCAL_DIRS=${SPARK_LOCAL_DIRS:-${MESOS_SANDBOX:-/tmp}}",
          "if [ -n \"$JAVA_HOME\" ]; then java=$JAVA_HOME/bin/java; else java=java; fi",
          "notice=0",
          "trap 'trap \"\" TERM; notice=1; kill -%4$s \"$pid\" 2>/dev/null' TERM",
          "(trap '' TERM; exec \"$java\" -cp \"$SPARK_HOME/conf:$SPARK_HOME/jars/*%1$s\" %2$s"
              + " org.apache.spark.executor.CoarseGrainedExecutorBackend --driver-url \"$SPARK_PELOTON_DRIVER\""
              + " --executor-id \"$id\" --hostname \"$host\" --cores %3$d --app-id \"$SPARK_PELOTON_APP\""
              + " --resourceProfileId 0) &",
          "pid=$!",
          "wait \"$pid\"; status=$?",
          "while kill -0 \"$pid\" 2>/dev/null; do wait \"$pid\"; status=$?; done",
          "if [ $notice = 1 ]; then exit 143; fi",
          "exit $status");

  private final SparkConf conf;
  private final int heapMib;

  /** @param heapMib as the context read it, from settings or from the environment */
  ExecutorPod(SparkConf conf, int heapMib) {
    this.conf = conf;
    this.heapMib = heapMib;
  }

  int cores() {
    return conf.getInt("spark.executor.cores", 1);
  }

  /** Heap, overhead, memory outside of the heap, and that of Python. */
  long memoryMib() {
    long overhead = conf.getSizeAsMb("spark.executor.memoryOverhead", defaultOverheadMib() + "m");
    long offHeap =
        conf.getBoolean("spark.memory.offHeap.enabled", false) ? conf.getSizeAsMb("spark.memory.offHeap.size", "0m") : 0;
    return heapMib + overhead + offHeap + conf.getSizeAsMb("spark.executor.pyspark.memory", "0m");
  }

  private long defaultOverheadMib() {
    long minimum = conf.getSizeAsMb("spark.executor.minMemoryOverhead", OVERHEAD_MIN_MIB + "m");
    return Math.max(minimum, (long) (heapMib * conf.getDouble("spark.executor.memoryOverheadFactor", OVERHEAD_FACTOR)));
  }

  /**
   * Return the TaskConfig.
   *
   * @param isOfDriver whether the job is the driver's, whose default configuration is not that of executors
   * @param rounds what the runs of all instances are counted from, see {@link ExecutorId}
   */
  ObjectNode config(String driverUrl, String appId, int rounds, boolean isOfDriver) {
    ObjectNode config = PelotonApi.JSON.createObjectNode();
    config.put("name", "executor").put("complete", isOfDriver);
    config
        .putObject("resource")
        .put("cpuLimit", conf.getDouble("spark.peloton.executor.cpus", cores()))
        .put("memLimitMb", memoryMib())
        .put("diskLimitMb", conf.getSizeAsMb("spark.peloton.executor.disk", "1g"));
    ObjectNode command = config.putObject("command").put("shell", true).put("value", script());
    ArrayNode variables = command.putObject("environment").putArray("variables");
    environment(driverUrl, appId, rounds).forEach((key, value) -> variables.addObject().put("name", key).put("value", value));
    config.put("killGracePeriodSeconds", conf.getTimeAsSeconds("spark.peloton.executor.gracePeriod", "30s"));
    config.put("revocable", conf.getBoolean("spark.peloton.executor.revocable", false));
    config.putObject("restartPolicy").put("maxFailures", FAILURES_MAX);
    config.putObject("preemptionPolicy").put("type", "TYPE_PREEMPTIBLE");
    Map<String, String> constraints = pairs("spark.peloton.executor.constraints");
    if (!constraints.isEmpty()) {
      ObjectNode all = config.putObject("constraint").put("type", "AND_CONSTRAINT");
      ArrayNode each = all.putObject("andConstraint").putArray("constraints");
      constraints.forEach((key, value) -> addHostLabel(each.addObject(), key, value));
    }
    if (conf.contains("spark.peloton.container.image")) {
      ObjectNode image = config.putObject("container").put("type", "MESOS").putObject("mesos").putObject("image");
      image.put("type", "DOCKER").putObject("docker").put("name", conf.get("spark.peloton.container.image"));
    }
    return config;
  }

  /** The pairs of a setting like {@code rack=r1,zone=a}. */
  Map<String, String> pairs(String setting) {
    Map<String, String> found = new LinkedHashMap<>();
    for (String pair : conf.get(setting, "").split(",")) {
      int at = pair.indexOf('=');
      if (at > 0) {
        found.put(pair.substring(0, at).trim(), pair.substring(at + 1).trim());
      } else if (!pair.isBlank()) {
        throw new IllegalArgumentException(setting + ": \"" + pair + "\" is not of the form KEY=VALUE");
      }
    }
    return found;
  }

  private static void addHostLabel(ObjectNode constraint, String key, String value) {
    ObjectNode label = constraint.put("type", "LABEL_CONSTRAINT").putObject("labelConstraint");
    label.put("kind", "HOST").put("condition", "CONDITION_EQUAL").put("requirement", 1);
    label.putObject("label").put("key", key).put("value", value);
  }

  private String script() {
    String notice = conf.getBoolean("spark.decommission.enabled", false) ? DECOMMISSION : "HUP";
    String classPath = conf.get("spark.executor.extraClassPath", "");
    String more = classPath.isEmpty() ? "" : ":" + classPath;
    return String.format(SCRIPT, more, String.join(" ", javaOptions()), cores(), notice);
  }

  private List<String> javaOptions() {
    List<String> options = new ArrayList<>(List.of("-Xmx" + heapMib + "m"));
    options.add(JavaModuleOptions.defaultModuleOptions());
    options.add(conf.get("spark.executor.defaultJavaOptions", ""));
    options.add(conf.get("spark.executor.extraJavaOptions", ""));
    for (Tuple2<String, String> one : conf.getAll()) {
      if (SparkConf.isExecutorStartupConf(one._1())) {
        options.add(quote("-D" + one._1() + "=" + one._2()));
      }
    }
    options.removeIf(String::isBlank);
    return options;
  }

  private Map<String, String> environment(String driverUrl, String appId, int rounds) {
    Map<String, String> variables = new LinkedHashMap<>();
    variables.put("SPARK_HOME", sparkHome());
    variables.put("SPARK_PELOTON_DRIVER", driverUrl);
    variables.put("SPARK_PELOTON_APP", appId);
    variables.put("SPARK_PELOTON_ROUNDS", Integer.toString(rounds));
    for (Tuple2<String, String> one : conf.getAll()) {
      if (one._1().startsWith("spark.executorEnv.")) {
        variables.put(one._1().substring("spark.executorEnv.".length()), one._2());
      }
    }
    return variables;
  }

  private String sparkHome() {
    boolean hasImage = conf.contains("spark.peloton.container.image");
    String own = hasImage ? null : System.getenv("SPARK_HOME");
    return conf.get("spark.peloton.executor.sparkHome", own == null ? IMAGE_SPARK_HOME : own);
  }

  private static String quote(String text) {
    return "'" + text.replace("'", "'\\''") + "'";
  }
}
