package peloton

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"peloton.internal/go/api/job"
	jobv0 "peloton.internal/go/api/v0/job"
	pelotonv0 "peloton.internal/go/api/v0/peloton"
	watchsvcv1alpha "peloton.internal/go/api/v1alpha/watch/svc"
)

// firstPoll and longestPoll bound the pause between two reads of a job that is waited for.
const firstPoll, longestPoll = 200 * time.Millisecond, 5 * time.Second

// WaitForJob returns a batch job when it has ended, in whatever state. It lasts as long as ctx at most, and takes
// restarts of the API for pauses.
func (c *Client) WaitForJob(ctx context.Context, id string) (*jobv0.JobInfo, error) {
	jobs := job.NewJobManagerClient(c)
	for pause := firstPoll; ; pause = min(2*pause, longestPoll) {
		answer, err := jobs.Get(ctx, &jobv0.GetRequest{Id: &pelotonv0.JobID{Value: id}})
		if err != nil {
			return nil, err
		}
		if missing := answer.GetError().GetNotFound(); missing != nil {
			return nil, status.Error(codes.NotFound, missing.GetMessage())
		}
		switch answer.GetJobInfo().GetRuntime().GetState() {
		case jobv0.JobState_SUCCEEDED, jobv0.JobState_FAILED, jobv0.JobState_KILLED:
			return answer.GetJobInfo(), nil
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// Watch calls see with each change of service jobs or their pods, until ctx ends or see returns an error, which it
// returns. The first message of a stream has the revision after which changes follow. When the API restarts, or this
// watcher was too slow, it resumes after the last revision seen: no change is missed, and the last one of each object
// is seen again at most. An error that outlasts RepeatTime is returned.
func (c *Client) Watch(
	ctx context.Context, request *watchsvcv1alpha.WatchRequest, see func(*watchsvcv1alpha.WatchResponse) error,
) error {
	request = proto.CloneOf(request)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watches := watchsvcv1alpha.NewWatchServiceClient(c)
	pauses := pauses{reads: true}
	for {
		stream, err := watches.Watch(ctx, request)
		for err == nil {
			var response *watchsvcv1alpha.WatchResponse
			if response, err = stream.Recv(); err == nil {
				if err := see(response); err != nil {
					return err
				}
				request.StartRevision = max(request.GetStartRevision(), response.GetRevision())
				pauses.until = time.Time{}
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if reason, _ := Reason(err); reason == "WATCH_OVERFLOW" {
			continue
		}
		var trailer metadata.MD
		if stream != nil {
			trailer = stream.Trailer()
		}
		pause, repeats := pauses.after(err, trailer)
		if !repeats {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}
