// Calls of the public API as JSON: POST /api/<service>/<method>.

export class Refused extends Error {
  // ``status``: of HTTP, 0 without an answer. ``place``: where in a file that was sent, from 1.
  constructor(readonly code: string, message: string, readonly status = 0, readonly place?: { line: number; column: number }) {
    super(message);
  }
}

// Returns whether the same call may succeed in a moment: the server does not answer or is overloaded.
export function isPassing(error: Error): boolean {
  return error instanceof Refused && ["unavailable", "deadline_exceeded", "resource_exhausted"].includes(error.code);
}

export async function call<Answer = any>(service: string, method: string, request: object = {}): Promise<Answer> {
  const answer = await fetched(`/api/${service}/${method}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(request),
  });
  const refusal = refusalIn(answer);
  if (refusal) throw refusal;
  return answer;
}

// Methods of v0 put theirs into the answer: { error: { notFound: { message: "..." } } }.
function refusalIn(answer: { error?: Record<string, { message?: string }> }): Refused | null {
  const [first] = Object.entries(answer.error ?? {});
  return first ? new Refused(first[0], first[1].message || first[0]) : null;
}

export async function fetched<Answer = any>(path: string, init?: RequestInit): Promise<Answer> {
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch {
    throw new Refused("unavailable", "Peloton does not answer: is `peloton up`, or role web, running?");
  }
  const text = await response.text();
  if (response.ok) return JSON.parse(text);
  let fault: { code?: string; message?: string; line?: number; column?: number } = {};
  try {
    fault = JSON.parse(text);
  } catch {
    // the body is not from Peloton, but from a proxy
  }
  const place = fault.line ? { line: fault.line, column: fault.column ?? 1 } : undefined;
  throw new Refused(fault.code ?? String(response.status), fault.message ?? `${path}: HTTP status ${response.status}`, response.status, place);
}
