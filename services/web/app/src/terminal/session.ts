// A command in a pod over a WebSocket, see services/web/terminal.py. Neither side sends more than the other can buffer.

const INPUT_WINDOW = 64 * 1024; // bytes sent and not yet taken by the command
const INPUT_PIECE = 16 * 1024;
export const INPUT_WAITING_MAX = 1 << 20; // bytes typed or pasted that wait to be sent

export interface Size {
  rows: number;
  columns: number;
}

export interface Asked extends Size {
  job: string;
  instance: number;
  command: string;
  container: string;
}

export interface Ended {
  exitCode?: number;
  problem?: string; // why it ended otherwise
}

export interface Heard {
  open: () => void;
  output: (data: Uint8Array, taken: () => void) => void;
  ended: (how: Ended) => void; // once
}

export class Session {
  private readonly socket: WebSocket;
  private waiting: Uint8Array[] = [];
  private waitingBytes = 0;
  private sentBytes = 0; // not yet taken
  private isConnected = false;
  private hasEnded = false;

  constructor(asked: Asked, private readonly heard: Heard) {
    const query = new URLSearchParams({ command: asked.command, container: asked.container, rows: String(asked.rows), columns: String(asked.columns) });
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}/terminal/${asked.job}/${asked.instance}?${query}`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onmessage = ({ data }) => (typeof data === "string" ? this.receive(JSON.parse(data)) : this.written(new Uint8Array(data)));
    this.socket.onopen = () => (this.isConnected = true);
    this.socket.onclose = () => this.end({ problem: this.isConnected ? "The connection was lost, and the command was ended with it" : "Peloton does not answer" });
  }

  // False: too much waits already, and nothing of it is sent.
  type(data: Uint8Array): boolean {
    if (this.waitingBytes + data.length > INPUT_WAITING_MAX) return false;
    for (let at = 0; at < data.length; at += INPUT_PIECE) this.waiting.push(data.subarray(at, at + INPUT_PIECE));
    this.waitingBytes += data.length;
    this.send();
    return true;
  }

  resize(size: Size): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(size));
  }

  // The command is ended, too.
  close(how: Ended = { problem: "It was ended from this page" }): void {
    this.end(how);
  }

  private send(): void {
    while (this.socket.readyState === WebSocket.OPEN && this.waiting.length && this.sentBytes + this.waiting[0]!.length <= INPUT_WINDOW) {
      const piece = this.waiting.shift()!;
      this.waitingBytes -= piece.length;
      this.sentBytes += piece.length;
      this.socket.send(piece as Uint8Array<ArrayBuffer>);
    }
  }

  private receive(message: { open?: boolean; taken?: number; exitCode?: number; problem?: { message: string } }): void {
    if (message.open) {
      this.heard.open();
      this.send();
    }
    if (message.taken) {
      this.sentBytes -= message.taken;
      this.send();
    }
    if (message.exitCode !== undefined) this.end({ exitCode: message.exitCode });
    if (message.problem) this.end({ problem: message.problem.message });
  }

  private written(data: Uint8Array): void {
    this.heard.output(data, () => {
      if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ taken: data.length }));
    });
  }

  private end(how: Ended): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.socket.close();
    this.heard.ended(how);
  }
}
