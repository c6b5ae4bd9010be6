package peloton.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import java.util.Map;

/** Adds the headers that the original's servers require of each call. */
final class Headers implements ClientInterceptor {
  static final String CALLER = "peloton-java";
  private static final String JOBMGR = "peloton-jobmgr";
  private static final String RESMGR = "peloton-resmgr";
  private static final String HOSTMGR = "peloton-hostmgr";

  /** Services that role jobmgr of the original did not serve. */
  private static final Map<String, String> ROLES =
      Map.of(
          "ResourceManager", RESMGR,
          "ResourcePoolService", RESMGR,
          "ExplainService", RESMGR,
          "MoverService", RESMGR,
          "HostService", HOSTMGR,
          "InternalHostService", HOSTMGR,
          "MaintenanceService", HOSTMGR,
          "RebalanceService", HOSTMGR,
          "AdviceService", HOSTMGR);

  @Override
  public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel channel) {
    String service = method.getServiceName();
    String role = ROLES.getOrDefault(service.substring(service.lastIndexOf('.') + 1), JOBMGR);
    return new SimpleForwardingClientCall<>(channel.newCall(method, options)) {
      @Override
      public void start(Listener<A> listener, Metadata headers) {
        put(headers, "rpc-caller", CALLER);
        put(headers, "rpc-service", role);
        put(headers, "rpc-encoding", "proto");
        super.start(listener, headers);
      }
    };
  }

  private static void put(Metadata headers, String name, String value) {
    headers.put(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER), value);
  }
}
