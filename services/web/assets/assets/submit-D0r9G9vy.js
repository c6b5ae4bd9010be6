import{B as e,G as t,H as n,J as r,K as i,L as a,M as o,T as s,U as c,f as l,p as u,y as d,z as f}from"./index-zp3UnLWL.js";import{a as p,c as m,d as h,f as g,g as _,h as v,i as y,l as b,m as x,n as ee,o as S,p as C,s as w,t as T,u as E}from"./submit-B4qyNXTJ.js";import{t as D}from"./settings-Dp51PsyV.js";import{t as O}from"./asked-BjVG2BPf.js";import{t as k}from"./confirm-Di_alkcr.js";import{t as A}from"./bar-DV_XLrDy.js";import{t as j}from"./same-as-BKVHHrJR.js";import{t as M}from"./why-DFZuB9gq.js";import{t as N}from"./typed-BP8BvJ3O.js";var P={job:{"a job":`# The first job: ten instances that say hello and sleep for a few seconds.
#   peloton job create /tutorial examples/tutorial/hello.yaml --watch
name: hello
owningteam: tutorial
description: Says hello ten times
labels:
  - key: stage
    value: tutorial
instancecount: 10
sla:
  priority: 1
  preemptible: true
defaultconfig:
  resource:
    cpulimit: 0.2
    memlimitmb: 32
    disklimitmb: 16
  command:
    shell: true
    value: 'echo "Hello from instance $PELOTON_INSTANCE_ID"; sleep 5; echo "Goodbye"'
  restartpolicy:
    maxfailures: 3
`,"a gang, which starts whole":`# A gang: minimumrunninginstances instances are admitted, placed and launched together or not at all, as distributed
# training needs it. When one of them fails all run again.
#   peloton job create /tutorial examples/gang.yaml --watch
name: gang
owningteam: tutorial
instancecount: 4
sla:
  priority: 5
  preemptible: false
  minimumrunninginstances: 4
  maximumrunninginstances: 4
  maxrunningtime: 300
defaultconfig:
  resource:
    cpulimit: 0.25
    memlimitmb: 32
    disklimitmb: 16
  command:
    shell: true
    value: 'echo "worker $PELOTON_INSTANCE_ID of the gang started"; sleep 3'
  restartpolicy:
    maxfailures: 3
`,"a controller":`# A controller job, like Spark's driver with its executors: instance 0 is the controller, whose end
# decides the end of the job. Workers may start and end meanwhile.
#   peloton job create /tutorial examples/controller.yaml --watch
name: controller
owningteam: tutorial
instancecount: 3
sla:
  priority: 3
  preemptible: true
defaultconfig:
  resource:
    cpulimit: 0.2
    memlimitmb: 32
    disklimitmb: 16
  command:
    shell: true
    value: 'echo "worker $PELOTON_INSTANCE_ID"; sleep 2'
  restartpolicy:
    maxfailures: 3
instanceconfig:
  0:
    name: controller
    controller: true
    command:
      shell: true
      value: 'echo "controller: handing out work"; sleep 5; echo "controller: done"'
`,"revocable instances":`# A revocable job: it runs on slack, cpu that other jobs hold and do not use, and is evicted when they need it. Start
# an idle one first (examples/tutorial/sleeper.yaml); \`peloton job why JOB\` shows the slack.
#   peloton job create /tutorial examples/revocable.yaml --watch
# Memory and disk are not slack: revocable pods borrow a fifth of what their pool has reserved, or as much as the pool's
# slacklimit says.
name: revocable
owningteam: tutorial
instancecount: 2
sla:
  priority: 1
  preemptible: true
  revocable: true
defaultconfig:
  resource:
    cpulimit: 0.1
    memlimitmb: 16
    disklimitmb: 16
  command:
    shell: true
    value: 'echo "instance $PELOTON_INSTANCE_ID runs on slack"; sleep 10'
  restartpolicy:
    maxfailures: 3
`,"instances that differ":`# Configuration per instance, ports and environment variables.
#   peloton job create /tutorial examples/overrides.yaml --watch
#
# What an instance does not set comes from defaultconfig. A field that it does set replaces the default's as a whole:
# instance 2 has its own resources, so it must name all of them.
name: overrides
owningteam: tutorial
instancecount: 3
sla:
  priority: 2
  preemptible: true
defaultconfig:
  resource:
    cpulimit: 0.2
    memlimitmb: 32
    disklimitmb: 16
  # A port with value 0 is chosen by Peloton; the task finds it in the variable envname.
  ports:
    - name: http
      value: 0
      envname: HTTP_PORT
  command:
    shell: true
    value: 'echo "$GREETING from instance $PELOTON_INSTANCE_ID of job $PELOTON_JOB_ID, port $HTTP_PORT"; sleep 2'
    environment:
      variables:
        - name: GREETING
          value: Hello
  restartpolicy:
    maxfailures: 3
instanceconfig:
  1:
    name: polite
    command:
      shell: true
      value: 'echo "$GREETING from instance $PELOTON_INSTANCE_ID, port $HTTP_PORT"; sleep 2'
      environment:
        variables:
          - name: GREETING
            value: Good evening
  2:
    name: large
    resource:
      cpulimit: 0.5
      memlimitmb: 64
      disklimitmb: 16
`,"a daemon, on every host":`# A daemon: one pod on each host, also on hosts that join later. Resources for it are reserved on each of them.
#   peloton job daemon create /tutorial examples/daemon.yaml
name: heartbeat
type: DAEMON
owningteam: tutorial
sla:
  priority: 10
defaultconfig:
  resource:
    cpulimit: 0.1
    memlimitmb: 16
    disklimitmb: 16
  command:
    shell: true
    value: 'while true; do echo "host $(hostname) is alive"; sleep 5; done'
`},service:{"a web service":`# A small web service: three instances on three hosts, each with a health check, at most one of them down voluntarily.
#   peloton job stateless create /tutorial examples/services/web.yaml 1 --watch
# Change something, check the difference, and roll it out one instance at a time:
#   peloton job stateless replace JOB examples/services/web.yaml 1 --diff --watch
#   peloton job stateless rollback JOB --watch
name: web
owningteam: tutorial
description: Lists the files of its sandbox.
labels:
  - {key: service, value: web}
instancecount: 3
sla:
  priority: 5
  maximumunavailableinstances: 1
defaultspec:
  labels:
    - {key: service, value: web}
  containers:
    - name: web
      resource:
        cpulimit: 0.1
        memlimitmb: 32
        disklimitmb: 16
      ports:
        - {name: http, envname: PORT, type: PORT_TYPE_DYNAMIC_ENV_VAR}
      entrypoint:
        value: 'exec python3 -m http.server --bind 127.0.0.1 "$PORT"'
      livenesscheck:
        enabled: true
        type: HEALTH_CHECK_TYPE_COMMAND
        initialintervalsecs: 1
        intervalsecs: 2
        timeoutsecs: 5
        maxconsecutivefailures: 3
        commandcheck:
          command: 'python3 -c "import os, urllib.request as u; u.urlopen(\\"http://127.0.0.1:\\" + os.environ[\\"PORT\\"])"'
  # On a host that runs less than one pod with this label.
  constraint:
    type: CONSTRAINT_TYPE_LABEL
    labelconstraint:
      kind: LABEL_CONSTRAINT_KIND_POD
      condition: LABEL_CONSTRAINT_CONDITION_LESS_THAN
      label: {key: service, value: web}
      requirement: 1
  killgraceperiodseconds: 5
`,"a database with volumes":`# A small database: two servers, each with an SQLite file of its own on a volume that outlives its pods.
#   peloton job stateless create /tutorial examples/database/database.yaml --watch
# Write something, restart it one server at a time, and read it again, as docs/stateful.md has it.
name: database
owningteam: tutorial
description: Keys and values by HTTP, kept in SQLite.
instancecount: 2
sla:
  priority: 5
  maximumunavailableinstances: 1
defaultspec:
  # A folder of this name in the sandbox: it is made with the first launch of an instance, and each later run finds it.
  volume:
    containerpath: data
    sizemb: 64
  containers:
    - name: database
      resource:
        cpulimit: 0.1
        memlimitmb: 64
        disklimitmb: 16
      ports:
        - {name: http, envname: PORT, type: PORT_TYPE_DYNAMIC_ENV_VAR}
      entrypoint:
        value: |
          cat > server.py <<'END'
          import os, signal, sqlite3, sys
          from http.server import BaseHTTPRequestHandler, HTTPServer

          database = sqlite3.connect("data/rows.sqlite", isolation_level=None)
          database.execute("PRAGMA journal_mode = WAL")
          database.execute("PRAGMA synchronous = FULL")
          database.execute("CREATE TABLE IF NOT EXISTS pair (key TEXT PRIMARY KEY, value BLOB)")

          class Handler(BaseHTTPRequestHandler):
              def do_GET(self):
                  row = database.execute("SELECT value FROM pair WHERE key = ?", (self.path,)).fetchone()
                  self.answer(200 if row else 404, row[0] if row else b"")

              def do_PUT(self):
                  value = self.rfile.read(int(self.headers["Content-Length"]))
                  database.execute("INSERT OR REPLACE INTO pair VALUES (?, ?)", (self.path, value))
                  self.answer(200, b"")

              def answer(self, status, body):
                  self.send_response(status)
                  self.send_header("Content-Length", str(len(body)))
                  self.end_headers()
                  self.wfile.write(body)

          signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
          HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
          END
          exec python3 server.py
      livenesscheck:
        enabled: true
        type: HEALTH_CHECK_TYPE_COMMAND
        initialintervalsecs: 1
        intervalsecs: 2
        timeoutsecs: 5
        maxconsecutivefailures: 3
        commandcheck:
          command: 'python3 -c "import os, urllib.request as u, urllib.error as e; u.urlopen(u.Request(\\"http://127.0.0.1:\\" + os.environ[\\"PORT\\"] + \\"/health\\", b\\"1\\", method=\\"PUT\\"))"'
  killgraceperiodseconds: 5
`},pool:{"a pool":`# A resource pool for trying things out: \`peloton respool create /tutorial examples/tutorial/pool.yaml\`.
#
# Each kind of resource has
#   reservation  what the pool gets whenever it wants it,
#   limit        what it never exceeds, even when the rest of the cluster is idle (at most the limit of a pool above),
#   share        its weight when what is not reserved is divided among the pools that want more.
# cpu and gpu are counted in cores and devices, memory and disk in MB.
name: tutorial
owningteam: tutorial
description: Everybody's playground
resources:
  - kind: cpu
    reservation: 1
    limit: 4
    share: 1
  - kind: memory
    reservation: 256
    limit: 2048
    share: 1
  - kind: disk
    reservation: 256
    limit: 2048
    share: 1
policy: PriorityFIFO
`,"a pool below another":`# A pool below another: its reservation comes out of the parent's, its limit is at most the parent's.
#   peloton respool create /tutorial/maps examples/maps.yaml
# Jobs run in leaves only: once /tutorial has a child, jobs go to /tutorial/maps.
name: maps
owningteam: maps
resources:
  - kind: cpu
    reservation: 0.5
    limit: 2
    share: 2
  - kind: memory
    reservation: 128
    limit: 1024
    share: 2
  - kind: disk
    reservation: 128
    limit: 1024
    share: 2
policy: PriorityFIFO
`}},F=300,I=3e3,L=[403,413];function R(e,t,n){let[r,a]=i({of:null,faults:[]}),[o,s]=i(0);return c(()=>{if(!n)return;let r=!1,i,o=e=>{if(r)return;let i=(e.faults??[]).map(n.inside),o=n.bounds().filter(e=>!i.some(t=>t.line===e.line)),s=[...i,...o].sort((e,t)=>e.line-t.line);n.show(s),a({...e,of:t,faults:s})},c=setTimeout(()=>{C(e,t).then(e=>o({message:e}),e=>{if(e.place)return o({faults:[{...e.place,text:e.message}]});o({failure:e.message}),!r&&!L.includes(e.status)&&(i=setTimeout(()=>s(e=>e+1),I))})},F);return()=>{r=!0,clearTimeout(c),clearTimeout(i)}},[e,t,n,o]),r}function z({kind:e,initial:a,changed:o,ready:s}){let l=t(null),[f,p]=i(`loading`);return c(()=>{let t=null,r=!1;return(async()=>{let[{edit:i},c]=await Promise.all([n(()=>import(`./editor-Bg_NcfKq.js`),[]),u(`/schemas/${e}.json`)]);r||(t=i(l.current,a,c,`YAML of the ${e}`,`editor-keys`,o),p(`there`),s(t))})().catch(e=>!r&&p({failure:e.message})),()=>{r=!0,t?.close()}},[]),d(r,{children:[f===`loading`&&d(`p`,{class:`quiet`,"aria-busy":`true`,children:`Loading the editor`}),typeof f==`object`&&d(`p`,{class:`stale`,role:`alert`,children:[`The editor could not be loaded, load the page again: `,f.failure]}),d(`div`,{class:`editor`,ref:l}),d(`p`,{class:`quiet`,id:`editor-keys`,children:[d(`kbd`,{children:`Ctrl`}),`+`,d(`kbd`,{children:`Space`}),` completes keys and values. `,d(`kbd`,{children:`Tab`}),` indents; `,d(`kbd`,{children:`Esc`}),` and then `,d(`kbd`,{children:`Tab`}),` leaves the editor.`]})]})}function B({kind:e,read:{message:t,faults:n,failure:r,of:i},text:a,goTo:o}){return d(`div`,{class:`faults`,role:`status`,children:[r&&d(`p`,{class:`stale`,children:[`Not checked: `,r]}),i===a&&t&&!n.length&&d(`p`,{class:`fine`,children:V(e,t)}),n.length>0&&d(`ul`,{class:`wrong`,children:n.map(e=>d(`li`,{class:`critical`,children:[d(`button`,{type:`button`,class:`plain`,onClick:()=>o(e),children:[`Line `,e.line,`, column `,e.column]}),`: `,e.text]},`${e.line} ${e.column} ${e.text}`))})]})}function V(e,t){let n=t.name||`without a name`;if(e===`pool`)return`The pool ${n}`;let r=t.instanceCount??0;return`The ${e} ${n}, ${r} ${r===1?`instance`:`instances`}`}function H(e){let[t,n]=i({of:``}),r=async t=>{n({of:e,isAsking:!0});try{let{service:r,method:i,request:a}=E(t),o=await l(r,i,a);n({of:e,plan:o,wanted:t})}catch(t){n({of:e,failure:t.message})}};return c(()=>n(t=>t.of===e?t:{of:``}),[e]),{...t.of===e?t:{},ask:r}}function U(e,t){if(e===`pool`)return`${t.poolPath} ${`isNew`in t&&t.isNew?`would be a new pool`:`exists, creating it will be refused`}`;let{admittedInstances:n=0,waitingInstances:r=0,heldBackInstances:i=0,room:a,daemon:o}=t;if(o?.length)return`a daemon: ${o.map(W).join(`; `)}`;let c=s(n+r+i,`instance`),l=[r&&`${s(r)} would wait`,i&&`${s(i)} would be held back by the maximum of running instances`].filter(Boolean);return a?.hostlessInstances&&l.unshift(`${s(a.hostlessInstances)} of these would wait for a host`),[`${s(n)} of ${c} would be admitted now in ${t.poolPath}`,...l].join(`, `)}function W({cluster:e,notKnown:t,hosts:n=0,matchingHosts:r=0,hostsWithRoom:i=0}){let a=e?`cluster ${e}: `:``;return t?`${a}not known: ${t}`:`${a}${s(r)} of ${s(n,`host`)} match, ${s(i)} with room for it now`}function G({wanted:e,plan:t}){let{service:n,method:r,request:i}=E(e);return d(`section`,{"aria-label":`Plan`,children:[d(`h2`,{children:`Plan`}),e.kind===`pool`?d(Y,{plan:t}):d(q,{kind:e.kind,plan:t}),d(j,{title:`This plan from a terminal`,command:h(e),service:n,method:r,request:i})]})}var K=e=>e.split(`
`).map(e=>e.charAt(0).toUpperCase()+e.slice(1)).join(`
`);function q({kind:e,plan:t}){let{admittedInstances:n=0,waitingInstances:i=0,heldBackInstances:a=0,evictions:o=[],room:s}=t;return t.daemon?.length?d(J,{plan:t,clusters:t.daemon}):d(r,{children:[d(A,{label:`Instances`,parts:[{name:`admitted`,value:n,tone:`allocation`},{name:`would wait`,value:i,tone:`demand`},{name:`held back`,value:a,tone:`slack`}],whole:n+i+a,text:U(e,t)}),s?.text&&d(`p`,{class:s.notKnown?`lines stale`:`lines`,children:K(s.text)}),t.waiting?.length||t.reasons?.length?d(M,{why:t}):null,d(v,{evictions:o,names:t.jobNames}),!o.length&&d(`p`,{children:`Nothing would be evicted for it.`}),e===`service`&&d(`p`,{class:`quiet`,children:`It is of all instances at once: batches, which come one after the other, are not part of a plan.`})]})}function J({plan:e,clusters:t}){return d(r,{children:[t.filter(e=>!e.notKnown).map(e=>{let t=[{name:`run at once`,value:e.hostsWithRoom??0,tone:`allocation`},{name:`after evictions`,value:e.evictingHosts??0,tone:`slack`},{name:`later`,value:(e.waitingHosts??0)+(e.uncheckedHosts??0)+(e.hostsInMaintenance??0),tone:`demand`}];return d(A,{label:e.cluster||`Hosts`,parts:t,whole:e.hosts??0,text:W(e)},e.cluster)}),d(`p`,{class:t.some(e=>e.notKnown)?`lines stale`:`lines`,children:e.text})]})}function Y({plan:e}){return d(r,{children:[e.isNew?d(`p`,{children:[e.poolPath,` would be a new pool.`]}):d(`p`,{class:`stale`,children:[e.poolPath,` exists: this is what changing it to this file would do. Creating it will be refused; `,d(`code`,{children:`peloton respool update`}),` changes it.`]}),d(_,{plan:e}),e.text&&d(`details`,{children:[d(`summary`,{children:`In words`}),d(`p`,{class:`lines`,children:e.text})]})]})}var X=e=>`peloton-submit-${e}`;function Z(e){return x(X(e))??Object.values(P[e])[0]}function Q({kind:e}){let[t]=i(()=>Z(e)),[n,a]=i(t),[o,s]=i(!0),[c,l]=i(null),[u,f]=i(null),p=R(e,n,c),h=ne(e),[g,_]=i(0),v=p.of===n?p.message:void 0,y=v&&h.id?{kind:e,message:v,pool:h.path,poolId:h.id,batchSize:g}:null,b=H(JSON.stringify([n,h.path,g])),x=te(e,c);return d(r,{children:[d(`div`,{class:`filters`,children:[d(re,{kind:e,pool:h}),e===`service`&&d(`label`,{children:[`Add at a time`,` `,d(`input`,{type:`number`,min:0,max:1e5,value:g||``,placeholder:`all`,onInput:e=>_(Math.max(0,Math.floor(Number(e.currentTarget.value))))})]}),d(`label`,{children:[`Example`,` `,d(`select`,{value:``,onChange:t=>{c?.replace(P[e][t.currentTarget.value]),t.currentTarget.value=``},children:[d(`option`,{value:``,children:`begin with …`}),Object.keys(P[e]).map(e=>d(`option`,{value:e,children:e},e))]})]}),d($,{take:e=>c?.replace(e)})]}),x&&d(`p`,{class:`stale`,role:`alert`,children:x}),h.away?d(`p`,{class:`stale`,role:`alert`,children:[`It can be written now, and neither planned nor created: `,h.away]}):h.problem&&d(`p`,{class:`stale`,role:`alert`,children:h.problem}),d(z,{kind:e,initial:t,changed:t=>{a(t),f(null),s(m(X(e),t))},ready:l}),!o&&d(`p`,{class:`stale`,children:`The text is too large to be kept when the page is loaded again.`}),d(B,{kind:e,read:p,text:n,goTo:e=>c?.goTo(e)}),h.paths?.length&&!h.path?d(`p`,{class:`quiet`,children:`Choose a pool to plan it or to create it.`}):null,d(`p`,{class:`buttons`,children:[d(`button`,{type:`button`,disabled:!y||b.isAsking,onClick:()=>void b.ask(y),children:`Plan`}),d(ie,{wanted:y,done:f,plan:b.plan&&U(e,b.plan)})]}),D.value.viewer&&!D.value.mayChange&&d(`p`,{class:`quiet`,children:`You may look and plan, and not create.`}),d(`div`,{"aria-live":`polite`,children:[u&&d(ae,{created:u}),b.isAsking&&d(`p`,{class:`quiet`,"aria-busy":`true`,children:`Planning`}),b.failure&&d(`p`,{class:`stale`,role:`alert`,children:[`It cannot be planned: `,b.failure]}),b.plan&&b.wanted&&d(G,{wanted:b.wanted,plan:b.plan})]}),d(oe,{wanted:y,kind:e})]})}function te(t,n){let r=t===`pool`?``:f(`from`),[a,o]=i(``);return c(()=>{if(!r||!n)return;let i=!1;return w(t,r).then(t=>{i||(n.replace(t),e({from:``}))},e=>!i&&o(`The ${t} ${r} could not be read: ${e.message}`)),()=>{i=!0}},[r,n]),a}function ne(e){let{value:t,error:n}=o(`pools`),r=t?.filter(([t,,n])=>e===`pool`||n&&t!==`/`).map(([e])=>e),i=e===`pool`?`/`:r?.length===1?r[0]:``,a=f(e===`pool`?`parent`:`pool`)||i,{value:s,error:c}=O(a,async()=>a?{path:a,id:await g(a,e)}:null);return{path:a,paths:r,id:s?.path===a?s.id:void 0,away:n?.message,problem:a?c?.message:void 0}}function re({kind:t,pool:n}){return t!==`pool`&&n.paths?.length===0&&!n.path?d(`p`,{children:[`There is no pool yet, and `,t,`s run in pools: `,d(`a`,{href:`/submit?kind=pool`,children:`create one`}),`.`]}):d(`label`,{children:[ee[t],` `,d(N,{list:`pool-paths`,value:n.path,placeholder:`/path`,isWrong:!!n.problem,take:n=>e({[t===`pool`?`parent`:`pool`]:n})}),d(`datalist`,{id:`pool-paths`,children:(n.paths??[]).map(e=>d(`option`,{value:e},e))})]})}function $({take:e}){let n=t(null);return d(r,{children:[d(`input`,{ref:n,type:`file`,accept:`.yaml,.yml`,hidden:!0,onChange:async()=>{let t=n.current.files?.[0];t&&e(await t.text()),n.current.value=``}}),d(`button`,{type:`button`,onClick:()=>n.current.click(),children:`Open a file`})]})}function ie({wanted:e,plan:n,done:r}){let i=t(null);c(()=>{e&&(i.current=e)},[e]);let o=e??i.current,s=o?.message.name||`it`;return d(k,{label:`Create`,weight:`primary`,title:`Create ${s}?`,act:async()=>{let t=await y(e);t.warnings.length?r(t):a(t.href)},disabled:!e,children:[o&&d(`p`,{children:[V(o.kind,o.message),`, `,o.kind===`pool`?`as ${b(o.pool,o.message.name)}`:`in ${o.pool}`,o.batchSize?`, ${o.batchSize} at a time`:``,`.`]}),n?d(`p`,{children:[`By its plan: `,n,`.`]}):d(`p`,{class:`quiet`,children:`What would become of it has not been planned.`})]})}function ae({created:e}){return d(`section`,{role:`status`,children:[d(`p`,{class:`fine`,children:[`Created: `,d(`a`,{href:e.href,children:e.name})]}),d(`ul`,{class:`wrong`,children:e.warnings.map(e=>d(`li`,{class:`warning`,children:[d(`strong`,{children:`Warning`}),`: `,e]},e))})]})}function oe({wanted:e,kind:t}){let n=e??{kind:t,message:{name:`NAME`},pool:`/POOL`,poolId:`POOL-ID`,batchSize:0},{service:r,method:i,request:a}=p(n.message.parent?{...n,message:{...n.message,parent:void 0}}:n);return d(j,{title:`Creating it from a terminal`,command:S(n),service:r,method:i,request:a})}function se(){let e=T.find(e=>e===f(`kind`))??`job`;return d(r,{children:[d(`h1`,{children:`Submit`}),d(`nav`,{class:`tabs`,"aria-label":`What to submit`,children:T.map(t=>d(`a`,{href:ce(t),"aria-current":t===e?`page`:void 0,children:t[0].toUpperCase()+t.slice(1)},t))}),d(Q,{kind:e},e)]})}function ce(e){let t=new URLSearchParams({kind:e});for(let e of[`pool`,`parent`])f(e)&&t.set(e,f(e));return`/submit?${t}`}export{se as default};