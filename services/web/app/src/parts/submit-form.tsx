// A file of one kind: its pool, its text, what is wrong with it, its plan, and its creation.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Editor } from "../editor/editor";
import { EXAMPLES } from "../editor/examples";
import { useLive } from "../live";
import { type Row } from "../pools";
import { go, parameter, setParameters } from "../router";
import { settings } from "../settings";
import { create, createCall, createCommand, type Created, fileOf, keep, type Kind, pathOf, POOL_LABELS, poolIdAt, recall, type Wanted } from "../submit";
import { useAsked } from "./asked";
import { Confirm } from "./confirm";
import { EditorBox, Faults, summary, useRead } from "./submit-editor";
import { headline, PlanOutcome, usePlan } from "./submit-plan";
import { SameAs } from "./same-as";
import { Typed } from "./typed";

const draftKey = (kind: Kind) => `peloton-submit-${kind}`;

function firstText(kind: Kind): string {
  return recall(draftKey(kind)) ?? Object.values(EXAMPLES[kind]!)[0]!;
}

export function SubmitForm({ kind }: { kind: Kind }) {
  const [initial] = useState(() => firstText(kind));
  const [text, setText] = useState(initial);
  const [isKept, setKept] = useState(true);
  const [editor, setEditor] = useState<Editor | null>(null);
  const [created, setCreated] = useState<Created | null>(null);
  const found = useRead(kind, text, editor);
  const pool = usePool(kind);
  const [batchSize, setBatchSize] = useState(0);
  const message = found.of === text ? found.message : undefined;
  const wanted: Wanted | null = message && pool.id ? { kind, message, pool: pool.path, poolId: pool.id, batchSize } : null;
  const planned = usePlan(JSON.stringify([text, pool.path, batchSize]));
  const from = useFrom(kind, editor);
  const changed = (fresh: string) => {
    setText(fresh);
    setCreated(null);
    setKept(keep(draftKey(kind), fresh));
  };
  return (
    <>
      <div class="filters">
        <PoolChoice kind={kind} pool={pool} />
        {kind === "service" && (
          <label>
            Add at a time{" "}
            <input type="number" min={0} max={100_000} value={batchSize || ""} placeholder="all" onInput={(event) => setBatchSize(Math.max(0, Math.floor(Number(event.currentTarget.value))))} />
          </label>
        )}
        <label>
          Example{" "}
          <select value="" onChange={(event) => { editor?.replace(EXAMPLES[kind]![event.currentTarget.value]!); event.currentTarget.value = ""; }}>
            <option value="">begin with …</option>
            {Object.keys(EXAMPLES[kind]!).map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
        </label>
        <OpenFile take={(fresh) => editor?.replace(fresh)} />
      </div>
      {from && <p class="stale" role="alert">{from}</p>}
      {pool.away ? <p class="stale" role="alert">It can be written now, and neither planned nor created: {pool.away}</p>
        : pool.problem && <p class="stale" role="alert">{pool.problem}</p>}
      <EditorBox kind={kind} initial={initial} changed={changed} ready={setEditor} />
      {!isKept && <p class="stale">The text is too large to be kept when the page is loaded again.</p>}
      <Faults kind={kind} read={found} text={text} goTo={(fault) => editor?.goTo(fault)} />
      {pool.paths?.length && !pool.path ? <p class="quiet">Choose a pool to plan it or to create it.</p> : null}
      <p class="buttons">
        <button type="button" disabled={!wanted || planned.isAsking} onClick={() => void planned.ask(wanted!)}>Plan</button>
        <Create wanted={wanted} done={setCreated} plan={planned.plan && headline(kind, planned.plan)} />
      </p>
      {settings.value.viewer && !settings.value.mayChange && <p class="quiet">You may view and plan, but not create.</p>}
      <div aria-live="polite">
        {created && <Done created={created} />}
        {planned.isAsking && <p class="quiet" aria-busy="true">Planning</p>}
        {planned.failure && <p class="stale" role="alert">It cannot be planned: {planned.failure}</p>}
        {planned.plan && planned.wanted && <PlanOutcome wanted={planned.wanted} plan={planned.plan} />}
      </div>
      <Same wanted={wanted} kind={kind} />
    </>
  );
}

// Once, what the address asks for in place of the draft; undoing it brings that back. Says why there is none.
function useFrom(kind: Kind, editor: Editor | null): string {
  const id = kind === "pool" ? "" : parameter("from");
  const [failure, setFailure] = useState("");
  useEffect(() => {
    if (!id || !editor) return;
    let isOld = false;
    fileOf(kind, id).then(
      (text) => {
        if (isOld) return;
        editor.replace(text);
        setParameters({ from: "" });
      },
      (error: Error) => !isOld && setFailure(`The ${kind} ${id} could not be read: ${error.message}`),
    );
    return () => {
      isOld = true;
    };
  }, [id, editor]);
  return failure;
}

interface Pool {
  path: string;
  id?: string;
  problem?: string;
  away?: string; // why nothing can be asked now
  paths?: string[]; // null: not known yet
}

// The address names it. Jobs run in pools without children, and other pools may be anywhere.
function usePool(kind: Kind): Pool {
  const { value, error: away } = useLive<Row[]>("pools");
  const paths = value?.filter(([path, , isLeaf]) => kind === "pool" || (isLeaf && path !== "/")).map(([path]) => path);
  const only = kind === "pool" ? "/" : paths?.length === 1 ? paths[0]! : "";
  const path = parameter(kind === "pool" ? "parent" : "pool") || only;
  const { value: found, error } = useAsked(path, async () => (path ? { path, id: await poolIdAt(path, kind) } : null));
  return { path, paths, id: found?.path === path ? found.id : undefined, away: away?.message, problem: path ? error?.message : undefined };
}

function PoolChoice({ kind, pool }: { kind: Kind; pool: Pool }) {
  if (kind !== "pool" && pool.paths?.length === 0 && !pool.path) return <p>There is no pool yet, and {kind}s run in pools: <a href="/submit?kind=pool">create one</a>.</p>;
  return (
    <label>
      {POOL_LABELS[kind]}{" "}
      <Typed
        list="pool-paths" value={pool.path} placeholder="/path" isWrong={Boolean(pool.problem)}
        take={(text) => setParameters({ [kind === "pool" ? "parent" : "pool"]: text })}
      />
      <datalist id="pool-paths">{(pool.paths ?? []).map((path) => <option key={path} value={path} />)}</datalist>
    </label>
  );
}

function OpenFile({ take }: { take: (text: string) => void }) {
  const file = useRef<HTMLInputElement>(null);
  const open = async () => {
    const chosen = file.current!.files?.[0];
    if (chosen) take(await chosen.text());
    file.current!.value = "";
  };
  return (
    <>
      <input ref={file} type="file" accept=".yaml,.yml" hidden onChange={open} />
      <button type="button" onClick={() => file.current!.click()}>Open a file</button>
    </>
  );
}

function Create({ wanted, plan, done }: { wanted: Wanted | null; plan?: string; done: (created: Created) => void }) {
  const last = useRef<Wanted | null>(null);
  useEffect(() => {
    if (wanted) last.current = wanted;
  }, [wanted]);
  const shown = wanted ?? last.current;
  const name = shown?.message.name || "it";
  const act = async () => {
    const created = await create(wanted!);
    if (created.warnings.length) done(created);
    else go(created.href);
  };
  return (
    <Confirm label="Create" weight="primary" title={`Create ${name}?`} act={act} disabled={!wanted}>
      {shown && <p>{summary(shown.kind, shown.message)}, {shown.kind === "pool" ? `as ${pathOf(shown.pool, shown.message.name)}` : `in ${shown.pool}`}{shown.batchSize ? `, ${shown.batchSize} at a time` : ""}.</p>}
      {plan ? <p>By its plan: {plan}.</p> : <p class="quiet">It has not been planned.</p>}
    </Confirm>
  );
}

function Done({ created }: { created: Created }) {
  return (
    <section role="status">
      <p class="fine">Created: <a href={created.href}>{created.name}</a></p>
      <ul class="wrong">{created.warnings.map((text) => <li key={text} class="warning"><strong>Warning</strong>: {text}</li>)}</ul>
    </section>
  );
}

function Same({ wanted, kind }: { wanted: Wanted | null; kind: Kind }) {
  const shown: Wanted = wanted ?? { kind, message: { name: "NAME" }, pool: "/POOL", poolId: "POOL-ID", batchSize: 0 };
  const { service, method, request } = createCall(shown.message.parent ? { ...shown, message: { ...shown.message, parent: undefined } } : shown);
  return <SameAs title="Creating it from a terminal" command={createCommand(shown)} service={service} method={method} request={request} />;
}
