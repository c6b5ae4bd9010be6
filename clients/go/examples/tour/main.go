// The tour runs a batch job, waits for it, reads a refusal, and watches the pods of a service:
//
//	go run ./examples/tour localhost:5397 /tutorial
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	peloton "peloton.internal/go"
	"peloton.internal/go/api/job"
	mesosv1 "peloton.internal/go/api/mesos/v1"
	"peloton.internal/go/api/respool"
	"peloton.internal/go/api/task"
	jobv0 "peloton.internal/go/api/v0/job"
	pelotonv0 "peloton.internal/go/api/v0/peloton"
	respoolv0 "peloton.internal/go/api/v0/respool"
	taskv0 "peloton.internal/go/api/v0/task"
	statelessv1alpha "peloton.internal/go/api/v1alpha/job/stateless"
	statelesssvcv1alpha "peloton.internal/go/api/v1alpha/job/stateless/svc"
	pelotonv1alpha "peloton.internal/go/api/v1alpha/peloton"
	podv1alpha "peloton.internal/go/api/v1alpha/pod"
	watchv1alpha "peloton.internal/go/api/v1alpha/watch"
	watchsvcv1alpha "peloton.internal/go/api/v1alpha/watch/svc"
)

const (
	instances  = 3
	replicas   = 2
	tourBudget = 3 * time.Minute
)

var errSeen = errors.New("all of it was seen")

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: tour HOST:PORT POOL")
	}
	ctx, cancel := context.WithTimeout(context.Background(), tourBudget)
	defer cancel()
	if err := tour(ctx, os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func tour(ctx context.Context, address, poolPath string) error {
	client, err := peloton.Dial(address)
	if err != nil {
		return err
	}
	defer client.Close()

	pool, err := findPool(ctx, client, poolPath)
	if err != nil {
		return err
	}
	if err := runBatch(ctx, client, pool); err != nil {
		return err
	}
	readRefusal(ctx, client)
	return watchService(ctx, client, pool)
}

func findPool(ctx context.Context, client *peloton.Client, path string) (string, error) {
	request := &respoolv0.LookupRequest{Path: &respoolv0.ResourcePoolPath{Value: path}}
	found, err := respool.NewResourceManagerClient(client).LookupResourcePoolID(ctx, request)
	if err != nil {
		return "", err
	}
	if found.GetError() != nil {
		return "", fmt.Errorf("pool %s: %v", path, found.GetError())
	}
	return found.GetId().GetValue(), nil
}

func runBatch(ctx context.Context, client *peloton.Client, pool string) error {
	created, err := job.NewJobManagerClient(client).Create(ctx, &jobv0.CreateRequest{Config: &jobv0.JobConfig{
		Name:          "go-batch",
		RespoolID:     &pelotonv0.ResourcePoolID{Value: pool},
		InstanceCount: instances,
		Sla:           &jobv0.SlaConfig{Preemptible: true},
		DefaultConfig: &taskv0.TaskConfig{
			Resource: &taskv0.ResourceConfig{CpuLimit: 0.1, MemLimitMb: 32},
			Command:  &mesosv1.CommandInfo{Shell: proto.Bool(true), Value: proto.String("echo hello; sleep 1")},
		},
	}})
	if err != nil {
		return err
	}
	if created.GetError() != nil { // v0 puts some refusals into its answers
		return fmt.Errorf("refused: %v", created.GetError())
	}
	id := created.GetJobId()
	fmt.Println("created job", id.GetValue())

	ended, err := client.WaitForJob(ctx, id.GetValue())
	if err != nil {
		return err
	}
	fmt.Println("job ended as", ended.GetRuntime().GetState())

	pods, err := task.NewTaskManagerClient(client).List(ctx, &taskv0.ListRequest{JobId: id})
	if err != nil {
		return err
	}
	for instance := range uint32(instances) {
		runtime := pods.GetResult().GetValue()[instance].GetRuntime()
		fmt.Println("instance", instance, runtime.GetState(), "on", runtime.GetHost())
	}
	return nil
}

func readRefusal(ctx context.Context, client *peloton.Client) {
	request := &statelesssvcv1alpha.GetJobRequest{JobId: &pelotonv1alpha.JobID{Value: "unknown"}}
	_, err := statelesssvcv1alpha.NewJobServiceClient(client).GetJob(ctx, request)
	reason, metadata := peloton.Reason(err)
	fmt.Println("refused:", reason, metadata)
}

// watchService watches a service whose pods end every few seconds, until each of them runs the second time.
func watchService(ctx context.Context, client *peloton.Client, pool string) error {
	id := &pelotonv1alpha.JobID{Value: newID()}
	services := statelesssvcv1alpha.NewJobServiceClient(client)
	restarted, streams := map[string]bool{}, 0
	request := &watchsvcv1alpha.WatchRequest{PodFilter: &watchv1alpha.PodFilter{JobId: id}}
	err := client.Watch(ctx, request, func(response *watchsvcv1alpha.WatchResponse) error {
		if response.GetWatchId() != "" {
			streams++
			fmt.Println("watch stream", streams)
			if streams == 1 { // changes from now on are seen
				_, err := services.CreateJob(ctx, &statelesssvcv1alpha.CreateJobRequest{JobId: id, Spec: service(pool)})
				return err
			}
		}
		for _, pod := range response.GetPods() {
			fmt.Println("pod", pod.GetStatus().GetPodId().GetValue(), pod.GetStatus().GetState())
			running := pod.GetStatus().GetState() == podv1alpha.PodState_POD_STATE_RUNNING
			if running && !strings.HasSuffix(pod.GetStatus().GetPodId().GetValue(), "-1") {
				restarted[pod.GetPodName().GetValue()] = true
			}
		}
		if len(restarted) == replicas {
			return errSeen
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		return err
	}
	found, err := services.GetJob(ctx, &statelesssvcv1alpha.GetJobRequest{JobId: id})
	if err != nil {
		return err
	}
	version := found.GetJobInfo().GetStatus().GetVersion()
	deletion := &statelesssvcv1alpha.DeleteJobRequest{JobId: id, Version: version, Force: true}
	if _, err := services.DeleteJob(ctx, deletion); err != nil {
		return err
	}
	fmt.Println("service deleted")
	return nil
}

func service(pool string) *statelessv1alpha.JobSpec {
	return &statelessv1alpha.JobSpec{
		Name:          "go-service",
		RespoolId:     &pelotonv1alpha.ResourcePoolID{Value: pool},
		InstanceCount: replicas,
		Sla:           &statelessv1alpha.SlaSpec{Preemptible: true},
		DefaultSpec: &podv1alpha.PodSpec{Containers: []*podv1alpha.ContainerSpec{{
			Resource:   &podv1alpha.ResourceSpec{CpuLimit: 0.1, MemLimitMb: 32},
			Entrypoint: &podv1alpha.CommandSpec{Value: "sleep 5"},
		}}},
	}
}

func newID() string {
	var bytes [16]byte
	rand.Read(bytes[:])
	bytes[6], bytes[8] = bytes[6]&0x0f|0x40, bytes[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", bytes[:4], bytes[4:6], bytes[6:8], bytes[8:10], bytes[10:])
}
