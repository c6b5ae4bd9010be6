// A state as letter, word and colour, so that each alone is enough.

export type Tone = "good" | "busy" | "waiting" | "bad" | "over" | "none";

// Of jobs, pods, hosts and their events, updates, volumes, and schedules and their runs, without the prefix of their enum.
const TONES: Record<string, Tone> = {
  RUNNING: "good", SUCCEEDED: "over", READY: "busy", UP: "good", GREEN: "good",
  INITIALIZED: "waiting", PENDING: "waiting", PLACING: "busy", PLACED: "busy", LAUNCHING: "busy", LAUNCHED: "busy", STARTING: "busy",
  ROLLING_FORWARD: "busy", ROLLING_BACKWARD: "bad", PAUSED: "waiting", DRAINING: "busy", DRAINED: "waiting",
  FAILED: "bad", LOST: "bad", DOWN: "bad", RED: "bad", ORANGE: "waiting", ABORTED: "bad",
  JOINED: "good", LEFT: "bad", CORDONED: "waiting", UNCORDONED: "good", AVOIDED: "bad", FLAPPING: "bad", RESERVED: "waiting",
  VOLUME_LOST: "bad", VOLUME_FOUND: "good", MAINTENANCE_ASKED: "waiting", DRAIN_PROGRESS: "busy", DRAIN_FORCED: "bad", COMPLETED: "over", CANCELLED: "over",
  KILLING: "waiting", PREEMPTING: "waiting", KILLED: "over", DELETED: "over",
  CREATED: "good", DELETING: "waiting",
  ACTIVE: "good", REFUSED: "bad", TERMINATED: "over",
};

export function toneOf(state: string): Tone {
  return TONES[state] ?? "none";
}

export function State({ state }: { state: string }) {
  return (
    <span class={`state ${toneOf(state)}`}>
      <b aria-hidden="true">{state.slice(0, 1)}</b> {state.toLowerCase().replaceAll("_", " ")}
    </span>
  );
}
