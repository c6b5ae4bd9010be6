// Nothing is there yet: what to do next.
import type { ComponentChildren } from "preact";
import { Copy } from "./copy";

export function Empty({ children, command }: { children: ComponentChildren; command?: string }) {
  return (
    <div class="empty">
      <p>{children}</p>
      {command && <p><Copy text={command} /></p>}
    </div>
  );
}
