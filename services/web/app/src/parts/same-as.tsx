// The command and the call that give the same as the page.
import { Copy } from "./copy";

export function SameAs({ command, service, method, request = {} }: { command: string; service: string; method: string; request?: object }) {
  const body = JSON.stringify(request).replaceAll("'", `'\\''`);
  return (
    <details class="same-as">
      <summary>The same from a terminal</summary>
      <p><Copy text={command} /></p>
      <p><Copy text={`curl -s ${location.origin}/api/${service}/${method} -H 'content-type: application/json' -d '${body}'`} /></p>
    </details>
  );
}
