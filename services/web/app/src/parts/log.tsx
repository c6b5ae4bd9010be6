// What an instance prints: a window of a file of any size, which follows its end, moves through it, and finds texts in it.
import { Component } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { fetched } from "../api";
import { count } from "../format";
import { follow } from "../log/follow";
import { pieces, plain } from "../log/text";
import { appended, type Block, BLOCKS_MAX, countBefore, holds, prepended } from "../log/window";
import "../log/log.css";

const NEAR_PX = 300; // from an end of what is held: more is read
const AT_END_PX = 40;
const STATE_MAX = 100; // characters; an agent quotes paths

interface Part extends Block {
  is_end: boolean;
}

interface Found {
  text: string;
  count: number;
  places: number[]; // offsets of the first places
  searched: number;
  is_whole: boolean;
}

export function Log({ job, instance, run, file, isWhole = false }: { job: string; instance: number; run: string; file: string; isWhole?: boolean }) {
  const [blocks, setBlocks] = useState<Block[]>([]);
  const [follows, setFollows] = useState(true);
  const [wraps, setWraps] = useState(true);
  const [state, setState] = useState("Connecting");
  const [found, setFound] = useState<Found | null>(null);
  const [isSearching, setSearching] = useState(false);
  const [chosen, setChosen] = useState(0); // of the places
  const [fault, setFault] = useState("");
  const box = useRef<HTMLDivElement>(null);
  const isReading = useRef(false);
  const jump = useRef(0); // the latest, which makes the answers of earlier reads void
  const isAtEnd = useRef(true);
  const isMoved = useRef(false); // by the reader, since it was at the end
  const held = useRef(blocks); // a search takes its time
  held.current = blocks;
  const seeks = useRef(false); // the chosen place, once it is drawn
  const hasMore = useRef(false); // behind what is held, when it is not followed
  const address = (what = "", query = "") => `/logs/${job}/${instance}${what}?file=${encodeURIComponent(file)}&run=${encodeURIComponent(run)}${query}`;

  useEffect(() => {
    if (!follows) return;
    let end = 0;
    setBlocks([]);
    setState("Connecting");
    isAtEnd.current = true;
    isMoved.current = false;
    return follow(address(), {
      begin: (offset) => (end = offset),
      text: (behind, text) => {
        const block = { offset: end, end: behind, text };
        end = behind;
        setBlocks((before) => {
          const after = appended(before, block);
          if (!isAtEnd.current && after.length === BLOCKS_MAX) leave(); // what is being read would go
          return after;
        });
      },
      state: setState,
    });
  }, [job, instance, run, file, follows]);

  useLayoutEffect(() => {
    const lines = box.current!;
    if (follows && isAtEnd.current) lines.scrollTop = lines.scrollHeight;
  }, [blocks]);

  useLayoutEffect(() => {
    const mark = seeks.current && box.current!.querySelector("mark.current");
    if (!mark) return;
    seeks.current = false;
    mark.scrollIntoView({ block: "center", inline: "nearest" });
  });

  // The end that is held is not the end of the file any more.
  function leave() {
    setFollows(false);
    setState("Not followed");
    hasMore.current = true;
  }

  async function read(way: string, offset: number): Promise<Part | null> {
    if (isReading.current) return null;
    isReading.current = true;
    const mine = jump.current;
    try {
      setFault("");
      return await fetched<Part>(address("/part", `&way=${way}&offset=${offset}`));
    } catch (error) {
      setFault((error as Error).message);
      return null;
    } finally {
      if (mine === jump.current) isReading.current = false;
    }
  }

  async function goTo(offset: number, way: string) {
    if (follows) leave();
    const mine = ++jump.current;
    isReading.current = false; // a jump goes before what scrolling reads
    const part = await read(way, offset);
    if (!part || mine !== jump.current) return;
    hasMore.current = !part.is_end;
    setBlocks([part]);
    if (way === "forward") box.current!.scrollTop = 0;
  }

  async function readMore() {
    const lines = box.current!;
    const first = blocks[0];
    const fromEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight;
    if (isMoved.current || !follows) isAtEnd.current = fromEnd < AT_END_PX;
    if (isAtEnd.current) isMoved.current = false;
    if (first && first.offset > 0 && lines.scrollTop < NEAR_PX && !(follows && isAtEnd.current)) {
      const part = await read("back", first.offset);
      if (!part) return;
      if (blocks.length >= BLOCKS_MAX) leave();
      setBlocks((before) => (before[0] === first ? prepended(before, part) : before));
    } else if (!follows && hasMore.current && fromEnd < NEAR_PX && blocks.length) {
      const last = blocks.at(-1)!;
      const part = await read("forward", last.end);
      if (!part) return;
      hasMore.current = !part.is_end;
      if (part.text) setBlocks((before) => (before.at(-1)?.end === last.end ? appended(before, part) : before));
    }
  }

  async function find(text: string) {
    if (!text) return setFound(null);
    setFault("");
    setFound(null);
    setSearching(true);
    try {
      const answer = await fetched<Omit<Found, "text">>(address("/search", `&text=${encodeURIComponent(text)}`));
      setFound({ ...answer, text });
      choose({ ...answer, text }, 0);
    } catch (error) {
      setFault((error as Error).message);
    } finally {
      setSearching(false);
    }
  }

  function choose(among: Found, index: number) {
    if (!among.places.length) return;
    const next = (index + among.places.length) % among.places.length;
    setChosen(next);
    const offset = among.places[next]!;
    isAtEnd.current = false;
    seeks.current = true;
    if (!holds(held.current, offset)) goTo(offset, "around");
    else if (follows) leave();
  }

  return (
    <div>
      <div class="log-bar">
        <label><input type="checkbox" checked={follows} onChange={(event) => stay(event.currentTarget.checked)} /> Follow</label>
        <label><input type="checkbox" checked={wraps} onChange={(event) => setWraps(event.currentTarget.checked)} /> Wrap</label>
        <button type="button" onClick={() => goTo(0, "forward")}>First lines</button>
        <button type="button" onClick={() => stay(true)}>Last lines</button>
        <a class="button" href={address("/download")} download>Download</a>
        <Search found={found} isSearching={isSearching} chosen={chosen} find={find} choose={(index) => found && choose(found, index)} />
        <span class="quiet" role="status" title={state} data-varies>{state.length > STATE_MAX ? `${state.slice(0, STATE_MAX)}…` : state}</span>
      </div>
      {fault && <p class="stale" role="alert">{fault}</p>}
      <div
        class={`log-lines ${wraps ? "" : "unwrapped"} ${isWhole ? "whole" : ""}`} ref={box} tabIndex={0} role="region" aria-label={`${file} of instance ${instance}`}
        onScroll={readMore} onWheel={moved} onTouchMove={moved} onKeyDown={moved} onPointerDown={moved}
      >
        {blocks.map((block) => <Lines key={block.offset} block={block} wanted={found?.text ?? ""} current={placeIn(block)} />)}
      </div>
    </div>
  );

  function moved() {
    isMoved.current = true;
  }

  function stay(atEnd: boolean) {
    if (!atEnd) setState("Not followed");
    setFollows(atEnd);
    hasMore.current = !atEnd;
    isAtEnd.current = true;
    isMoved.current = false;
    if (atEnd) box.current!.scrollTop = box.current!.scrollHeight;
  }

  // Which of the places in a block is the chosen one; -1: none.
  function placeIn(block: Block): number {
    const offset = found?.places[chosen];
    if (!found || offset === undefined || offset < block.offset || offset >= block.end) return -1;
    return chosen - countBefore(found.places, block.offset);
  }
}

interface SearchProps {
  found: Found | null;
  isSearching: boolean;
  chosen: number;
  find: (text: string) => void;
  choose: (index: number) => void;
}

function Search({ found, isSearching, chosen, find, choose }: SearchProps) {
  const field = useRef<HTMLInputElement>(null);
  const submit = (event: Event) => {
    event.preventDefault();
    const text = field.current!.value;
    if (found && text === found.text) choose(chosen + 1);
    else find(text);
  };
  return (
    <form role="search" onSubmit={submit}>
      <input type="search" ref={field} aria-label="Text in the log" maxLength={200} placeholder="Text in the log" onInput={(event) => event.currentTarget.value || find("")} />
      <button type="submit" disabled={isSearching}>Find</button>
      {isSearching && <span role="status" class="quiet">Searching</span>}
      {found && (
        <>
          <button type="button" onClick={() => choose(chosen - 1)} disabled={!found.places.length}>Previous</button>
          <button type="button" onClick={() => choose(chosen + 1)} disabled={!found.places.length}>Next</button>
          <span role="status" class="quiet">{counted(found, chosen)}</span>
        </>
      )}
    </form>
  );
}

function counted(found: Found, chosen: number): string {
  const where = found.is_whole ? "" : ` in the first ${count(found.searched >> 20)} MiB`;
  if (!found.count) return `Not found${where}`;
  const cut = found.count > found.places.length ? `, the first ${count(found.places.length)} can be reached` : "";
  return `${count(chosen + 1)} of ${count(found.count)}${where}${cut}`;
}

// Drawn again only when it has changed: a log that is followed changes its last block.
class Lines extends Component<{ block: Block; wanted: string; current: number }> {
  shouldComponentUpdate(next: { block: Block; wanted: string; current: number }) {
    const { block, wanted, current } = this.props;
    return next.block !== block || next.wanted !== wanted || next.current !== current;
  }

  render({ block, wanted, current }: { block: Block; wanted: string; current: number }) {
    return (
      <div>
        {pieces(plain(block.text), wanted).map(({ text, place }) =>
          place < 0 ? text : <mark key={place} class={place === current ? "current" : ""}>{text}</mark>,
        )}
      </div>
    );
  }
}
