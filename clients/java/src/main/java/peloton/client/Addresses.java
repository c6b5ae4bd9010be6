package peloton.client;

import io.grpc.Attributes;
import io.grpc.EquivalentAddressGroup;
import io.grpc.NameResolver;
import io.grpc.NameResolverProvider;
import io.grpc.Status;
import io.grpc.StatusOr;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.URI;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Set;

/** Resolves the addresses of one client. */
final class Addresses extends NameResolverProvider {
  static final String SCHEME = "peloton";
  private static final int PORT_MAX = 65535;

  private final List<InetSocketAddress> servers = new ArrayList<>();

  Addresses(String addresses) {
    for (String part : addresses.split(",", -1)) {
      String address = part.trim();
      int colon = address.lastIndexOf(':');
      if (colon < 1) {
        throw new IllegalArgumentException("address \"" + address + "\" of \"" + addresses + "\": want HOST:PORT");
      }
      String port = address.substring(colon + 1);
      if (!port.matches("[0-9]{1,5}") || Integer.parseInt(port) < 1 || Integer.parseInt(port) > PORT_MAX) {
        throw new IllegalArgumentException(
            "address \"" + address + "\" of \"" + addresses + "\": port \"" + port + "\" is not in 1 to " + PORT_MAX);
      }
      servers.add(InetSocketAddress.createUnresolved(address.substring(0, colon), Integer.parseInt(port)));
    }
  }

  @Override
  public NameResolver newNameResolver(URI target, NameResolver.Args arguments) {
    return new Resolver();
  }

  @Override
  public String getDefaultScheme() {
    return SCHEME;
  }

  @Override
  protected boolean isAvailable() {
    return true;
  }

  @Override
  protected int priority() {
    return 5;
  }

  @Override
  public Collection<Class<? extends SocketAddress>> getProducedSocketAddressTypes() {
    return Set.of(InetSocketAddress.class);
  }

  private final class Resolver extends NameResolver {
    private Listener2 listener;

    @Override
    public String getServiceAuthority() {
      return "api";
    }

    @Override
    public void start(Listener2 listener) {
      this.listener = listener;
      refresh();
    }

    /** Resolve the names again, as after a lost connection; one that cannot be resolved is left out. */
    @Override
    public void refresh() {
      List<EquivalentAddressGroup> found = new ArrayList<>();
      for (InetSocketAddress server : servers) {
        try {
          List<SocketAddress> numbers = new ArrayList<>();
          for (InetAddress number : InetAddress.getAllByName(server.getHostString())) {
            numbers.add(new InetSocketAddress(number, server.getPort()));
          }
          found.add(new EquivalentAddressGroup(numbers, nameOf(server)));
        } catch (UnknownHostException unknown) {
          continue;
        }
      }
      StatusOr<List<EquivalentAddressGroup>> result =
          found.isEmpty()
              ? StatusOr.fromStatus(Status.UNAVAILABLE.withDescription("no address of " + servers + " is known"))
              : StatusOr.fromValue(found);
      listener.onResult2(ResolutionResult.newBuilder().setAddressesOrError(result).build());
    }

    @Override
    public void shutdown() {}

    /** The name that the certificate of a server must have. */
    private Attributes nameOf(InetSocketAddress server) {
      String authority = server.getHostString() + ":" + server.getPort();
      return Attributes.newBuilder().set(EquivalentAddressGroup.ATTR_AUTHORITY_OVERRIDE, authority).build();
    }
  }
}
