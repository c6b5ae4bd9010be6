// The stream of a log: its last lines, and what is added to them.

export interface Heard {
  begin: (offset: number) => void;
  text: (end: number, text: string) => void; // ``end``: the offset behind it
  state: (state: string) => void;
}

// Returns what ends it.
export function follow(address: string, heard: Heard): () => void {
  const source = new EventSource(address);
  const on = (name: string, take: (value: any, id: string) => void) =>
    source.addEventListener(name, (event) => take(JSON.parse((event as MessageEvent).data), (event as MessageEvent).lastEventId));
  const end = (state: string) => {
    source.close();
    heard.state(state);
  };
  on("begin", ({ offset }) => {
    heard.begin(offset);
    heard.state("Following");
  });
  on("text", (text: string, id) => {
    heard.state("Following");
    heard.text(Number(id), text);
  });
  on("waiting", ({ message }) => heard.state(`Waiting: ${message}`));
  on("end", ({ message }) => end(message ? `The run has ended: ${message}` : "The run has ended"));
  on("problem", ({ code, message }) => {
    if (code !== "unavailable") end(`It cannot be read: ${message}`);
    else heard.state(`It cannot be read now: ${message}`); // the browser connects again
  });
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) heard.state("It cannot be read now");
  };
  return () => source.close();
}
