package peloton

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"peloton.internal/go/api/job"
	jobv0 "peloton.internal/go/api/v0/job"
)

// certificates are those of the tests, which the module's archive lacks.
const certificates = "../../tests/certificates"

func serveTLS(t *testing.T) string {
	t.Helper()
	authorities, err := os.ReadFile(filepath.Join(certificates, "ca.pem"))
	if err != nil {
		t.Skip("no certificates for tests here")
	}
	own := filepath.Join(certificates, "server.pem")
	pair, err := tls.LoadX509KeyPair(own, own)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: x509.NewCertPool(), ClientAuth: tls.RequireAndVerifyClientCert,
	}
	config.ClientCAs.AppendCertsFromPEM(authorities)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	job.RegisterJobManagerServer(server, &failing{})
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// failing has a method that answers that it is not there.
type failing struct {
	job.UnimplementedJobManagerServer
}

func TestAnAPIWithTLSIsCalledWithACertificate(t *testing.T) {
	address := serveTLS(t)
	ca, own := filepath.Join(certificates, "ca.pem"), filepath.Join(certificates, "client.pem")
	for cert, expected := range map[string]codes.Code{own: codes.Unimplemented, "": codes.Unavailable} {
		secured, err := TLS(ca, cert, cert)
		if err != nil {
			t.Fatal(err)
		}
		client, err := Dial(address, secured)
		if err != nil {
			t.Fatal(err)
		}
		_, err = job.NewJobManagerClient(client).Create(t.Context(), &jobv0.CreateRequest{})
		if status.Code(err) != expected {
			t.Error(cert, err)
		}
		client.Close()
	}
	if _, err := TLS("/nowhere/ca.pem", "", ""); err == nil {
		t.Error("a missing file is no error")
	}
}
