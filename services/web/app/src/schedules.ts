// What the topic of schedules tells, and what the page makes of it.
export const SERVICE = "peloton.api.v0.schedule.ScheduleService";

export interface Times {
  crons?: string[];
  timeZone?: string;
  intervalS?: string; // whole numbers of 64 bits are texts
  offsetS?: string;
  jitterS?: string;
}

export interface Schedule {
  name: string;
  poolPath?: string;
  owner?: string;
  creator?: string;
  jobName?: string;
  times?: Times;
  paused?: boolean;
  note?: string;
  nextTimes?: string[];
  runs?: { state?: string; jobId?: string; jobName?: string; startTime?: string; reason?: string }[];
}

export interface Data {
  schedules: Schedule[];
  hasMore: boolean;
}

export function timesText({ crons = [], timeZone, intervalS = "0", offsetS = "0", jitterS = "0" }: Times = {}): string {
  const parts = crons.length ? [`${crons.join(", ")}${timeZone ? ` (${timeZone})` : ""}`] : [];
  if (Number(intervalS)) parts.push(`every ${durationText(Number(intervalS))}${Number(offsetS) ? ` + ${durationText(Number(offsetS))}` : ""}`);
  return parts.join(" and ") + (Number(jitterS) ? `, up to ${durationText(Number(jitterS))} later` : "");
}

// As options of commands take it: 1h30m.
function durationText(seconds: number): string {
  const parts: [number, string][] = [[Math.floor(seconds / 3600), "h"], [Math.floor(seconds / 60) % 60, "m"], [seconds % 60, "s"]];
  return parts.filter(([count]) => count).map(([count, unit]) => `${count}${unit}`).join("") || "0s";
}
