// Aurora's scheduler API, as far as the bridge reads or writes it: names and numbers are those of Aurora's clients.
//
// Times are milliseconds since 1970 unless a name says otherwise. Fields without a comment are what their names say.
// A field that Aurora has and this file leaves out is skipped when it is read.

enum ResponseCode {
  INVALID_REQUEST = 0
  OK = 1
  ERROR = 2
  WARNING = 3
  AUTH_FAILED = 4
  JOB_UPDATING_ERROR = 5
  ERROR_TRANSIENT = 6
}

struct Identity {
  1: optional string role // of clients before 0.8
  2: optional string user
}

struct JobKey {
  1: optional string role
  2: optional string environment
  3: optional string name
}

struct InstanceKey {
  1: optional JobKey jobKey
  2: optional i32 instanceId
}

struct Metadata {
  1: optional string key
  2: optional string value
}

// Closed range of instance ids.
struct Range {
  1: optional i32 first
  2: optional i32 last
}

// Constraints on hosts

struct ValueConstraint {
  1: optional bool negated
  2: optional set<string> values // one of them suffices
}

struct LimitConstraint {
  1: optional i32 limit // pods of the job on hosts with the same value
}

union TaskConstraint {
  1: ValueConstraint value
  2: LimitConstraint limit
}

struct Constraint {
  1: optional string name // of the host's attribute
  2: optional TaskConstraint constraint
}

// Containers

enum Mode {
  RW = 1
  RO = 2
}

struct Volume {
  1: optional string containerPath
  2: optional string hostPath
  3: optional Mode mode
}

struct DockerImage {
  1: optional string name
  2: optional string tag
}

struct AppcImage {
  1: optional string name
  2: optional string imageId
}

union Image {
  1: DockerImage docker
  2: AppcImage appc
}

struct MesosContainer {
  1: optional Image image
  2: optional list<Volume> volumes
}

struct DockerParameter {
  1: optional string name
  2: optional string value
}

struct DockerContainer {
  1: optional string image
  2: optional list<DockerParameter> parameters
}

union Container {
  1: MesosContainer mesos
  2: DockerContainer docker
}

// Tasks and jobs

struct MesosFetcherURI {
  1: optional string value
  2: optional bool extract
  3: optional bool cache
}

struct ExecutorConfig {
  1: optional string name
  2: optional string data // JSON of Thermos
}

union Resource {
  1: double numCpus
  2: i64 ramMb
  3: i64 diskMb
  4: string namedPort
  5: i64 numGpus
}

struct PartitionPolicy {
  1: optional bool reschedule
  2: optional i64 delaySecs
}

struct TaskConfig {
  7: optional bool isService
  8: optional double numCpus // fields 8, 9, 10 and 21: resources of clients before 0.16
  9: optional i64 ramMb
  10: optional i64 diskMb
  11: optional i32 priority
  13: optional i32 maxTaskFailures
  17: optional Identity owner
  18: optional bool production
  20: optional set<Constraint> constraints
  21: optional set<string> requestedPorts
  22: optional map<string, string> taskLinks
  23: optional string contactEmail
  25: optional ExecutorConfig executorConfig
  27: optional set<Metadata> metadata
  28: optional JobKey job
  29: optional Container container
  30: optional string tier
  32: optional set<Resource> resources
  33: optional set<MesosFetcherURI> mesosFetcherUris
  34: optional PartitionPolicy partitionPolicy
}

struct ResourceAggregate {
  1: optional double numCpus
  2: optional i64 ramMb
  3: optional i64 diskMb
  4: optional set<Resource> resources
}

enum CronCollisionPolicy {
  KILL_EXISTING = 0
  CANCEL_NEW = 1
  RUN_OVERLAP = 2
}

struct JobConfiguration {
  4: optional string cronSchedule
  5: optional CronCollisionPolicy cronCollisionPolicy
  6: optional TaskConfig taskConfig
  7: optional Identity owner
  8: optional i32 instanceCount
  9: optional JobKey key
}

struct JobStats {
  1: optional i32 activeTaskCount
  2: optional i32 finishedTaskCount
  3: optional i32 failedTaskCount
  4: optional i32 pendingTaskCount
}

struct JobSummary {
  1: optional JobConfiguration job
  2: optional JobStats stats
  3: optional i64 nextCronRunMs
}

struct ConfigGroup {
  1: optional TaskConfig config
  3: optional set<Range> instances
}

struct ConfigSummary {
  1: optional JobKey key
  2: optional set<ConfigGroup> groups
}

enum ScheduleStatus {
  PENDING = 0
  STARTING = 1
  RUNNING = 2
  FINISHED = 3
  FAILED = 4
  KILLED = 5
  KILLING = 6
  LOST = 7
  ASSIGNED = 9
  INIT = 11
  RESTARTING = 12
  PREEMPTING = 13
  THROTTLED = 16
  DRAINING = 17
  PARTITIONED = 18
}

struct TaskEvent {
  1: optional i64 timestamp
  2: optional ScheduleStatus status
  3: optional string message
  4: optional string scheduler
}

struct AssignedTask {
  1: optional string taskId
  2: optional string slaveId
  3: optional string slaveHost
  4: optional TaskConfig task
  5: optional map<string, i32> assignedPorts
  6: optional i32 instanceId
}

struct ScheduledTask {
  1: optional AssignedTask assignedTask
  2: optional ScheduleStatus status
  3: optional i32 failureCount
  4: optional list<TaskEvent> taskEvents
  5: optional string ancestorId
  6: optional i32 timesPartitioned
}

struct TaskQuery {
  2: optional string jobName
  4: optional set<string> taskIds
  5: optional set<ScheduleStatus> statuses
  7: optional set<i32> instanceIds
  9: optional string environment
  10: optional set<string> slaveHosts
  11: optional set<JobKey> jobKeys
  12: optional i32 offset
  13: optional i32 limit
  14: optional string role
}

// Updates

enum JobUpdateStatus {
  ROLLING_FORWARD = 0
  ROLLING_BACK = 1
  ROLL_FORWARD_PAUSED = 2
  ROLL_BACK_PAUSED = 3
  ROLLED_FORWARD = 4
  ROLLED_BACK = 5
  ABORTED = 6
  ERROR = 7
  FAILED = 8
  ROLL_FORWARD_AWAITING_PULSE = 9
  ROLL_BACK_AWAITING_PULSE = 10
}

enum JobUpdateAction {
  INSTANCE_UPDATED = 1
  INSTANCE_ROLLED_BACK = 2
  INSTANCE_UPDATING = 3
  INSTANCE_ROLLING_BACK = 4
  INSTANCE_UPDATE_FAILED = 5
  INSTANCE_ROLLBACK_FAILED = 6
}

enum JobUpdatePulseStatus {
  OK = 1
  FINISHED = 2
}

struct JobUpdateKey {
  1: optional JobKey job
  2: optional string id
}

struct JobUpdateSettings {
  1: optional i32 updateGroupSize
  2: optional i32 maxPerInstanceFailures
  3: optional i32 maxFailedInstances
  5: optional i32 minWaitInInstanceRunningMs
  6: optional bool rollbackOnFailure
  7: optional set<Range> updateOnlyTheseInstances
  8: optional bool waitForBatchCompletion
  9: optional i32 blockIfNoPulsesAfterMs
}

struct JobUpdateEvent {
  1: optional JobUpdateStatus status
  2: optional i64 timestampMs
  3: optional string user
  4: optional string message
}

struct JobInstanceUpdateEvent {
  1: optional i32 instanceId
  2: optional i64 timestampMs
  3: optional JobUpdateAction action
}

struct InstanceTaskConfig {
  1: optional TaskConfig task
  2: optional set<Range> instances
}

struct JobUpdateState {
  1: optional JobUpdateStatus status
  2: optional i64 createdTimestampMs
  3: optional i64 lastModifiedTimestampMs
}

struct JobUpdateSummary {
  3: optional string user
  4: optional JobUpdateState state
  5: optional JobUpdateKey key
  6: optional set<Metadata> metadata
}

struct JobUpdateInstructions {
  1: optional set<InstanceTaskConfig> initialState
  2: optional InstanceTaskConfig desiredState
  3: optional JobUpdateSettings settings
}

struct JobUpdate {
  1: optional JobUpdateSummary summary
  2: optional JobUpdateInstructions instructions
}

struct JobUpdateDetails {
  1: optional JobUpdate update
  2: optional list<JobUpdateEvent> updateEvents
  3: optional list<JobInstanceUpdateEvent> instanceEvents
}

struct JobUpdateRequest {
  1: optional TaskConfig taskConfig
  2: optional i32 instanceCount
  3: optional JobUpdateSettings settings
  4: optional set<Metadata> metadata
}

struct JobUpdateQuery {
  2: optional string role
  3: optional JobKey jobKey
  4: optional string user
  5: optional set<JobUpdateStatus> updateStatuses
  6: optional i32 offset
  7: optional i32 limit
  8: optional JobUpdateKey key
}

// Answers

struct ScheduleStatusResult {
  1: optional list<ScheduledTask> tasks
}

struct GetJobsResult {
  1: optional set<JobConfiguration> configs
}

struct JobSummaryResult {
  1: optional set<JobSummary> summaries
}

struct ConfigSummaryResult {
  1: optional ConfigSummary summary
}

struct StartJobUpdateResult {
  1: optional JobUpdateKey key
  2: optional JobUpdateSummary updateSummary
}

struct GetJobUpdateSummariesResult {
  1: optional list<JobUpdateSummary> updateSummaries
}

struct GetJobUpdateDetailsResult {
  1: optional JobUpdateDetails details
  2: optional list<JobUpdateDetails> detailsList
}

struct PulseJobUpdateResult {
  1: optional JobUpdatePulseStatus status
}

struct GetJobUpdateDiffResult {
  1: optional set<ConfigGroup> add
  2: optional set<ConfigGroup> remove
  3: optional set<ConfigGroup> update
  4: optional set<ConfigGroup> unchanged
}

struct TierConfig {
  1: optional string name
  2: optional map<string, string> settings
}

struct GetTierConfigResult {
  1: optional string defaultTierName
  2: optional set<TierConfig> tiers
}

union Result {
  3: ScheduleStatusResult scheduleStatusResult
  4: GetJobsResult getJobsResult
  18: JobSummaryResult jobSummaryResult
  20: ConfigSummaryResult configSummaryResult
  22: StartJobUpdateResult startJobUpdateResult
  23: GetJobUpdateSummariesResult getJobUpdateSummariesResult
  24: GetJobUpdateDetailsResult getJobUpdateDetailsResult
  25: PulseJobUpdateResult pulseJobUpdateResult
  26: GetJobUpdateDiffResult getJobUpdateDiffResult
  27: GetTierConfigResult getTierConfigResult
}

struct ServerInfo {
  1: optional string clusterName
  3: optional string statsUrlPrefix
}

struct ResponseDetail {
  1: optional string message
}

struct Response {
  1: optional ResponseCode responseCode
  3: optional Result result
  5: optional ServerInfo serverInfo
  6: optional list<ResponseDetail> details
}

service ReadOnlyScheduler {
  Response getRoleSummary()
  Response getJobSummary(1: string role)
  Response getTasksStatus(1: TaskQuery query)
  Response getTasksWithoutConfigs(1: TaskQuery query)
  Response getPendingReason(1: TaskQuery query)
  Response getConfigSummary(1: JobKey job)
  Response getJobs(1: string ownerRole)
  Response getQuota(1: string ownerRole)
  Response populateJobConfig(1: JobConfiguration description)
  Response getJobUpdateSummaries(1: JobUpdateQuery jobUpdateQuery)
  Response getJobUpdateDetails(1: JobUpdateKey key, 2: JobUpdateQuery query)
  Response getJobUpdateDiff(1: JobUpdateRequest request)
  Response getTierConfigs()
}

service AuroraSchedulerManager extends ReadOnlyScheduler {
  Response createJob(1: JobConfiguration description)
  Response scheduleCronJob(1: JobConfiguration description)
  Response descheduleCronJob(4: JobKey job)
  Response startCronJob(4: JobKey job)
  Response restartShards(5: JobKey job, 3: set<i32> shardIds)
  Response killTasks(4: JobKey job, 5: set<i32> instances, 6: string message)
  Response addInstances(3: InstanceKey key, 4: i32 count)
  Response replaceCronTemplate(1: JobConfiguration config)
  Response startJobUpdate(1: JobUpdateRequest request, 3: string message)
  Response pauseJobUpdate(1: JobUpdateKey key, 3: string message)
  Response resumeJobUpdate(1: JobUpdateKey key, 3: string message)
  Response abortJobUpdate(1: JobUpdateKey key, 3: string message)
  Response rollbackJobUpdate(1: JobUpdateKey key, 2: string message)
  Response pulseJobUpdate(1: JobUpdateKey key)
}
