// The command and the call that give the same as the page.
import { Copy } from "./copy";

const BODY_SHOWN = 10_000; // a larger one is no line to copy

interface Props {
  command: string;
  service: string;
  method: string;
  request?: object;
  title?: string;
}

export function SameAs({ command, service, method, request = {}, title = "The same from a terminal" }: Props) {
  const body = JSON.stringify(request).replaceAll("'", `'\\''`);
  const given = body.length > BODY_SHOWN ? "@request.json" : `'${body}'`;
  return (
    <details class="same-as">
      <summary>{title}</summary>
      <p><Copy text={command} /></p>
      <p><Copy text={`curl -s ${location.origin}/api/${service}/${method} -H 'content-type: application/json' -d ${given}`} /></p>
    </details>
  );
}
