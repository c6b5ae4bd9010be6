// What the topic of volumes tells, and what the page makes of it.
export const SERVICE = "peloton.api.v0.volume.svc.VolumeService";

export interface Volume {
  id: { value: string };
  jobId: { value: string };
  instanceId?: number;
  hostname?: string;
  cluster?: string;
  state?: string;
  goalState?: string;
  sizeMB?: number;
  containerPath?: string;
  createTime?: string;
  message?: string;
  podName?: string;
  podState?: string;
}

export interface Data {
  volumes: Volume[];
  hasMore: boolean;
}

// A volume that its host has yet to destroy is there, and will not be.
export const stateOf = ({ state = "UNKNOWN", goalState }: Volume): string => (goalState === "DELETED" ? "DELETING" : state);
