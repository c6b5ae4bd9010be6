// Escapes control characters in names, messages and output of users, as the command line does (peloton/model/text.py).
// HTML needs no escaping here: Preact writes text nodes.
import { options, type VNode } from "preact";

const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu;

export function visible(text: string): string {
  return text.replace(CONTROL, (character) => {
    const code = character.codePointAt(0)!;
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

// Every text passes here on its way into a page; those of attributes and of the editor do not.
export function escapeTexts() {
  const before = options.vnode;
  options.vnode = (vnode: VNode) => {
    const text = vnode as unknown as { type: unknown; props: unknown };
    if (text.type === null && typeof text.props === "string") text.props = visible(text.props);
    before?.(vnode);
  };
}
