// The part of a file that a page holds: blocks that join, of a file of any size.

export interface Block {
  offset: number; // bytes of the file
  end: number;
  text: string;
}

export const BLOCKS_MAX = 16;
const BLOCK_TEXT = 64 * 1024; // characters

// Behind what is held. A short text joins the block before it; the oldest blocks go.
export function appended(blocks: Block[], more: Block): Block[] {
  const last = blocks.at(-1);
  if (!last || last.end !== more.offset) return [more];
  const joins = last.text.length + more.text.length <= BLOCK_TEXT;
  const joined = joins ? [...blocks.slice(0, -1), { ...last, end: more.end, text: last.text + more.text }] : [...blocks, more];
  return joined.slice(-BLOCKS_MAX);
}

// In front of what is held; the last blocks go.
export function prepended(blocks: Block[], more: Block): Block[] {
  return more.end === blocks[0]?.offset ? [more, ...blocks].slice(0, BLOCKS_MAX) : [more];
}

export function holds(blocks: Block[], offset: number): boolean {
  return blocks.length > 0 && blocks[0]!.offset <= offset && offset < blocks.at(-1)!.end;
}

// How many of the rising offsets are before this one.
export function countBefore(offsets: number[], offset: number): number {
  let low = 0;
  let high = offsets.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (offsets[middle]! < offset) low = middle + 1;
    else high = middle;
  }
  return low;
}
