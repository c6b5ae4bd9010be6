package org.apache.spark.scheduler.cluster.peloton;

import java.net.URI;
import java.net.URISyntaxException;

/**
 * A master URL: {@code peloton://host:port/pool/path}, where the port is that of the web role.
 *
 * <p>spark-submit and pyspark accept only masters whose names they know, and those that begin with "spark"; for them
 * the scheme is {@code spark+peloton}.
 */
record MasterUrl(URI api, String pool) {
  private static final String SCHEME = "peloton";
  private static final String SUBMIT_SCHEME = "spark+peloton";

  static boolean isPeloton(String text) {
    return text.startsWith(SCHEME + "://") || text.startsWith(SUBMIT_SCHEME + "://");
  }

  static MasterUrl parse(String text) {
    try {
      URI uri = new URI(text);
      if (isPeloton(text) && uri.getHost() != null && uri.getPort() > 0 && uri.getPath().length() > 1) {
        return new MasterUrl(URI.create("http://" + uri.getHost() + ":" + uri.getPort() + "/api/"), uri.getPath());
      }
    } catch (URISyntaxException wrong) {
      // The message below says what is expected.
    }
    throw new IllegalArgumentException(
        "master " + text + " is not of the form peloton://HOST:PORT/POOL, as in peloton://127.0.0.1:5398/batch/etl");
  }
}
