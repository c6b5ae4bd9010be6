// Package peloton calls the public API of Peloton.
//
//	client, err := peloton.Dial("localhost:5397")
//	jobs := job.NewJobManagerClient(client)
//
// Client is a grpc.ClientConnInterface: the stubs of all services, in the packages below api, take it as a connection.
package peloton

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
)

const (
	// DefaultAddress is where `peloton up` serves the API.
	DefaultAddress = "localhost:5397"
	// AttemptTimeout is the time of each attempt of a call whose context has no deadline. A stream has none.
	AttemptTimeout = 20 * time.Second
	// RepeatTime is the time after the first failure in which a call is repeated.
	RepeatTime = 60 * time.Second

	messageBytesMax = 256 << 20
	firstPause      = 250 * time.Millisecond
	longestPause    = 5 * time.Second
	connectTimeout  = 10 * time.Second
	retryAfter      = "retry-after-ms"
	caller          = "peloton-go"
	errorDomain     = "peloton"
)

// roles names the header rpc-service of the services that role jobmgr of the original did not serve.
var roles = map[string]string{
	"ResourceManager":     "peloton-resmgr",
	"ResourcePoolService": "peloton-resmgr",
	"ExplainService":      "peloton-resmgr",
	"MoverService":        "peloton-resmgr",
	"HostService":         "peloton-hostmgr",
	"InternalHostService": "peloton-hostmgr",
	"MaintenanceService":  "peloton-hostmgr",
	"RebalanceService":    "peloton-hostmgr",
	"AdviceService":       "peloton-hostmgr",
}

// readPrefixes begin the names of methods that change nothing.
var readPrefixes = []string{"Get", "List", "Query", "Find", "Lookup", "Browse", "Plan"}

// Client is a connection to one Peloton. It is safe for use by several goroutines.
//
// A call whose context has no deadline ends after AttemptTimeout; a stream lasts as long as its context. A call that a
// busy server refused, which has done nothing, is repeated when the server says so; a call that only reads is repeated
// when the server is not available. Other calls are not repeated: after UNAVAILABLE or DEADLINE_EXCEEDED, read whether
// they were carried out.
type Client struct {
	connection *grpc.ClientConn
}

// Dial returns a client of the API at an address, HOST:PORT, or of several with commas between, which take calls in
// turn. It does not wait for a connection. Options follow the client's own ones, and so can replace them.
func Dial(addresses string, options ...grpc.DialOption) (*Client, error) {
	servers, err := serversOf(addresses)
	if err != nil {
		return nil, err
	}
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay, reconnect.MaxDelay = firstPause, longestPause
	own := []grpc.DialOption{
		grpc.WithResolvers(servers),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: connectTimeout}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(messageBytesMax), grpc.MaxCallSendMsgSize(messageBytesMax)),
	}
	connection, err := grpc.NewClient(servers.Scheme()+":///api", append(own, options...)...)
	if err != nil {
		return nil, fmt.Errorf("addresses %q: %w", addresses, err)
	}
	return &Client{connection}, nil
}

// TLS returns an option of Dial for an API with TLS. The PEM file ca has the authorities that sign its certificate, cert
// and key are those of the client; both are empty where it shows none. They are read again for each connection.
func TLS(ca, cert, key string) (grpc.DialOption, error) {
	authorities, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !config.RootCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s: no certificates of authorities", ca)
	}
	if cert != "" {
		load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
		if _, err := load(nil); err != nil {
			return nil, err
		}
		config.GetClientCertificate = load
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(config)), nil
}

func serversOf(addresses string) (*manual.Resolver, error) {
	var found []resolver.Address
	for _, address := range strings.Split(addresses, ",") {
		address = strings.TrimSpace(address)
		host, port, err := net.SplitHostPort(address)
		if err != nil || host == "" {
			return nil, fmt.Errorf("address %q of %q: want HOST:PORT", address, addresses)
		}
		if number, err := strconv.Atoi(port); err != nil || number < 1 || number > 65535 {
			return nil, fmt.Errorf("address %q of %q: port %q is not in 1 to 65535", address, addresses, port)
		}
		found = append(found, resolver.Address{Addr: address, ServerName: host})
	}
	servers := manual.NewBuilderWithScheme("peloton")
	servers.InitialState(resolver.State{Addresses: found})
	return servers, nil
}

// Close ends the connection, and all calls on it.
func (c *Client) Close() error {
	return c.connection.Close()
}

// Invoke makes a call with one request and one answer; the stubs call it.
func (c *Client) Invoke(ctx context.Context, method string, request, answer any, options ...grpc.CallOption) error {
	ctx = withHeaders(ctx, method)
	pauses := pauses{reads: isRead(method)}
	for {
		var trailer metadata.MD
		err := c.attempt(ctx, method, request, answer, append(options, grpc.Trailer(&trailer))...)
		pause, repeats := pauses.after(err, trailer)
		if !repeats {
			return err
		}
		if sleep(ctx, pause) != nil {
			return err
		}
	}
}

func (c *Client) attempt(ctx context.Context, method string, request, answer any, options ...grpc.CallOption) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, AttemptTimeout)
		defer cancel()
	}
	return c.connection.Invoke(ctx, method, request, answer, options...)
}

// NewStream opens a stream; the stubs call it. It is not repeated: see Watch.
func (c *Client) NewStream(
	ctx context.Context, description *grpc.StreamDesc, method string, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return c.connection.NewStream(withHeaders(ctx, method), description, method, options...)
}

func withHeaders(ctx context.Context, method string) context.Context {
	service := path.Base(path.Dir(method))
	role, known := roles[service[strings.LastIndex(service, ".")+1:]]
	if !known {
		role = "peloton-jobmgr"
	}
	return metadata.AppendToOutgoingContext(ctx, "rpc-caller", caller, "rpc-service", role, "rpc-encoding", "proto")
}

func isRead(method string) bool {
	name := path.Base(method)
	for _, prefix := range readPrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// pauses decides about repeats of one call.
type pauses struct {
	reads bool
	until time.Time
	next  time.Duration
}

// after returns the pause before the next attempt, and whether there is one.
func (p *pauses) after(err error, trailer metadata.MD) (time.Duration, bool) {
	if err == nil {
		return 0, false
	}
	if p.until.IsZero() {
		p.until, p.next = time.Now().Add(RepeatTime), firstPause
	}
	var pause time.Duration
	switch code := status.Code(err); {
	case code == codes.ResourceExhausted && len(trailer.Get(retryAfter)) > 0:
		millis, err := strconv.Atoi(trailer.Get(retryAfter)[0])
		if err != nil {
			return 0, false
		}
		pause = time.Duration(millis) * time.Millisecond
	case code == codes.Unavailable && p.reads:
		pause = p.next
		p.next = min(2*p.next, longestPause)
	default:
		return 0, false
	}
	return pause, time.Now().Add(pause).Before(p.until)
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Reason returns the reason of a refusal, as in docs/errors.md, and its metadata: the object, the rule and the numbers.
// It is empty for errors that Peloton has not given.
func Reason(err error) (string, map[string]string) {
	var refused interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &refused) {
		return "", nil
	}
	for _, detail := range refused.GRPCStatus().Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is && info.GetDomain() == errorDomain {
			return info.GetReason(), info.GetMetadata()
		}
	}
	return "", nil
}
