package peloton

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"peloton.internal/go/api/job"
	jobv0 "peloton.internal/go/api/v0/job"
	watchsvcv1alpha "peloton.internal/go/api/v1alpha/watch/svc"
)

// server fails its calls as the test says, the first failure first.
type server struct {
	job.UnimplementedJobManagerServer
	watchsvcv1alpha.UnimplementedWatchServiceServer
	failures  []error
	states    []jobv0.JobState
	roles     [][]string
	trailer   metadata.MD
	revisions []uint64
}

func (s *server) next(ctx context.Context) error {
	headers, _ := metadata.FromIncomingContext(ctx)
	s.roles = append(s.roles, headers.Get("rpc-service"))
	if len(s.failures) == 0 {
		return nil
	}
	failure := s.failures[0]
	s.failures = s.failures[1:]
	grpc.SetTrailer(ctx, s.trailer)
	return failure
}

func (s *server) Create(ctx context.Context, _ *jobv0.CreateRequest) (*jobv0.CreateResponse, error) {
	return &jobv0.CreateResponse{}, s.next(ctx)
}

func (s *server) Get(ctx context.Context, _ *jobv0.GetRequest) (*jobv0.GetResponse, error) {
	state := jobv0.JobState_RUNNING
	if len(s.states) > 0 {
		state, s.states = s.states[0], s.states[1:]
	}
	info := &jobv0.JobInfo{Runtime: &jobv0.RuntimeInfo{State: state}}
	return &jobv0.GetResponse{JobInfo: info}, s.next(ctx)
}

func (s *server) Watch(
	request *watchsvcv1alpha.WatchRequest, stream grpc.ServerStreamingServer[watchsvcv1alpha.WatchResponse],
) error {
	s.revisions = append(s.revisions, request.GetStartRevision())
	if err := stream.Send(&watchsvcv1alpha.WatchResponse{Revision: 10 * uint64(len(s.revisions))}); err != nil {
		return err
	}
	return s.next(stream.Context())
}

func serve(t *testing.T) (*server, *Client) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := &server{}
	grpcServer := grpc.NewServer()
	job.RegisterJobManagerServer(grpcServer, served)
	watchsvcv1alpha.RegisterWatchServiceServer(grpcServer, served)
	go grpcServer.Serve(listener)
	t.Cleanup(grpcServer.Stop)
	client, err := Dial(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return served, client
}

func TestAReadIsRepeatedWithItsHeadersOnceWhenTheServerIsAway(t *testing.T) {
	served, client := serve(t)
	served.failures = []error{status.Error(codes.Unavailable, ""), status.Error(codes.Unavailable, "")}
	answer, err := job.NewJobManagerClient(client).Get(t.Context(), &jobv0.GetRequest{})
	if err != nil || answer.GetJobInfo() == nil || len(served.roles) != 3 {
		t.Fatal(answer, err, served.roles)
	}
	for _, roles := range served.roles {
		if !slices.Equal(roles, []string{"peloton-jobmgr"}) {
			t.Error(roles)
		}
	}
}

func TestAWriteIsNotRepeatedWhenTheServerIsAway(t *testing.T) {
	served, client := serve(t)
	served.failures = []error{status.Error(codes.Unavailable, "")}
	_, err := job.NewJobManagerClient(client).Create(t.Context(), &jobv0.CreateRequest{})
	if status.Code(err) != codes.Unavailable || len(served.roles) != 1 {
		t.Fatal(err, served.roles)
	}
}

func TestAWriteThatABusyServerRefusedIsRepeatedWhenItSays(t *testing.T) {
	served, client := serve(t)
	served.failures = []error{status.Error(codes.ResourceExhausted, "")}
	served.trailer = metadata.Pairs("retry-after-ms", "5")
	_, err := job.NewJobManagerClient(client).Create(t.Context(), &jobv0.CreateRequest{})
	if err != nil || len(served.roles) != 2 {
		t.Fatal(err, served.roles)
	}
}

func TestARefusalHasItsReason(t *testing.T) {
	served, client := serve(t)
	info := &errdetails.ErrorInfo{Reason: "JOB_NOT_FOUND", Domain: "peloton", Metadata: map[string]string{"job": "x"}}
	refusal, err := status.New(codes.NotFound, "").WithDetails(info)
	if err != nil {
		t.Fatal(err)
	}
	served.failures = []error{refusal.Err()}
	_, err = job.NewJobManagerClient(client).Get(t.Context(), &jobv0.GetRequest{})
	if reason, about := Reason(err); reason != "JOB_NOT_FOUND" || about["job"] != "x" || len(served.roles) != 1 {
		t.Fatal(reason, about, served.roles)
	}
	if reason, _ := Reason(errors.New("another")); reason != "" {
		t.Error(reason)
	}
}

func TestAJobIsWaitedForUntilItHasEnded(t *testing.T) {
	served, client := serve(t)
	served.states = []jobv0.JobState{jobv0.JobState_PENDING, jobv0.JobState_RUNNING, jobv0.JobState_FAILED}
	ended, err := client.WaitForJob(t.Context(), "x")
	if err != nil || ended.GetRuntime().GetState() != jobv0.JobState_FAILED {
		t.Fatal(ended, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := client.WaitForJob(ctx, "x"); err == nil {
		t.Error("the job has not ended")
	}
}

func TestAWatchResumesAfterTheLastRevision(t *testing.T) {
	served, client := serve(t)
	served.failures = []error{status.Error(codes.Unavailable, ""), status.Error(codes.OutOfRange, "")}
	var seen []uint64
	err := client.Watch(t.Context(), &watchsvcv1alpha.WatchRequest{}, func(r *watchsvcv1alpha.WatchResponse) error {
		seen = append(seen, r.GetRevision())
		return nil
	})
	if status.Code(err) != codes.OutOfRange || !slices.Equal(seen, []uint64{10, 20}) ||
		!slices.Equal(served.revisions, []uint64{0, 10}) {
		t.Fatal(err, seen, served.revisions)
	}
}

func TestAnAddressHasHostAndPort(t *testing.T) {
	for _, wrong := range []string{"", "localhost", "a:1,b", "a:0", "a:65536", ":5397", "a:x"} {
		if client, err := Dial(wrong); err == nil {
			client.Close()
			t.Error(wrong)
		}
	}
	client, err := Dial("one:5397, two:5398")
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
}
