import{A as e,C as t,F as n,I as r,M as i,O as a,P as o,R as s,_ as c,d as l,g as u,i as d,j as f,k as p,v as m}from"./index-C9YL9251.js";import{t as h}from"./service-XQ-AMwEs.js";import{r as g}from"./jobs-SedaYct0.js";import{n as _,t as v}from"./confirm-CVNH31ap.js";import{t as y}from"./asked-3LB9lGqM.js";import{t as b}from"./bar-rdU0n-Pl.js";import{n as x,t as ee}from"./pool-plan-CBBJPvO5.js";import{t as S}from"./same-as-DgEMaKZ6.js";import{t as C}from"./why-BuInDlP8.js";var w=`peloton.api.v0.explain.ExplainService`,T=`peloton.api.respool.ResourceManager`,E=[`unavailable`,`deadline_exceeded`,`canceled`,`unknown`,`internal`,`502`,`503`,`504`],D=[`changeLog`,`revision`,`respoolID`,`respoolId`],te=`APIs are locked down`,O=[`job`,`service`,`pool`],ne={job:`Pool`,service:`Pool`,pool:`Below the pool`};async function k(e,t){return(await m(`/files/${e}`,{method:`POST`,headers:{"content-type":`application/yaml`},body:t})).message}async function A(e,t){let n=e===`service`?await c(h,`GetJob`,{jobId:{value:t}}):await c(g,`Get`,{id:{value:t}}),r=e===`service`?n.jobInfo?.spec:n.jobInfo?.config;if(!r)throw Error(`there is no ${e} ${t}`);let i=Object.fromEntries(Object.entries(r).filter(([e])=>!D.includes(e)));return i.type===`DAEMON`&&delete i.instanceCount,(await m(`/files/${e}`,{method:`POST`,headers:{"content-type":`application/json`},body:JSON.stringify(i)})).text}async function j(e,t){let n=await c(T,`LookupResourcePoolID`,{path:{value:e}});if(n.id?.value)return n.id.value;let r=n.error?.invalidPath?.message||n.error?.notFound?.message||`no such pool`;throw Error(`unable to find ${t===`pool`?`parent`:`resource pool`} ${e}: ${r}`)}function M({kind:e,message:t,poolId:n}){if(e===`job`)return{...t,respoolID:{value:n}};if(e===`service`)return{...t,respoolId:{value:n}};if(t.parent)throw Error(`parent should not be supplied in the config`);return{...t,parent:{value:n}}}function N(e){let t=M(e);return e.kind===`pool`?{service:w,method:`PoolPlan`,request:{config:t}}:{service:w,method:`JobPlan`,request:e.kind===`service`?{spec:t}:{config:t}}}function P(e,t=``){let n=M(e),r=t&&{value:t};if(e.kind===`pool`)return{service:T,method:`CreateResourcePool`,request:{config:n}};if(e.kind===`job`)return{service:g,method:`Create`,request:{...r&&{id:r},config:n}};let i=e.batchSize?{createSpec:{batchSize:e.batchSize}}:{};return{service:h,method:`CreateJob`,request:{...r&&{jobId:r},spec:n,...i}}}function re({kind:e,pool:t}){return e===`pool`?`peloton respool plan pool.yaml${t===`/`?``:` --parent ${F(t)}`}`:e===`service`?`peloton job stateless plan ${F(t)} service.yaml`:`peloton job plan ${F(t)} job.yaml`}function ie({kind:e,pool:t,message:n,batchSize:r}){return e===`pool`?`peloton respool create ${F(I(t,n.name))} pool.yaml`:e===`job`?`peloton job create ${F(t)} job.yaml --watch`:`peloton job stateless create ${F(t)} service.yaml${r?` ${r}`:``} --watch`}function F(e){return/^[\w,./=:-]+$/.test(e)?e:`'${e.replaceAll(`'`,`'\\''`)}'`}function I(e,t){return`${e===`/`?``:e}/${t??``}`}var L=new Map,R=e=>`peloton-submit-try-${e}`;function z(e){let t=G(R(e));return L.get(e)??(t?JSON.parse(t):null)}function B(e,t){t?(L.set(e,t),W(R(e),JSON.stringify(t))):(L.delete(e),K(R(e)))}async function V(e){let{kind:t,message:n,pool:r}=e,i=JSON.stringify([e.pool,e.batchSize,n]),a=z(t),o=a?.what===i,s=o?a.id:U(),l={href:t===`pool`?d(I(r,n.name)):`/${t}s/${s}`,name:n.name||s,warnings:[]};B(t,{id:s,what:i});try{let{service:t,method:n,request:r}=P(e,s),i=await c(t,n,r),[a,o]=Object.entries(i.error??{})[0]??[];if(a)throw new u(a===`alreadyExists`?`already_exists`:`invalid_argument`,`${H(a)}${o?.message??``}`);l.warnings=i.warnings??[]}catch(e){let n=e;if(E.includes(n.code)&&!n.message.includes(te))throw new u(n.code,`${n.message}. Whether it was created is not known: create it again, which makes no second one.`);if(o||B(t,null),!(o&&n.code===`already_exists`))throw e}return B(t,null),l}function H(e){return{invalidConfig:`Invalid job config: `,invalidResourcePoolConfig:`Invalid resource pool config: `}[e]??``}function U(){let e=crypto.getRandomValues(new Uint8Array(16));e[6]=e[6]&15|64,e[8]=e[8]&63|128;let t=[...e].map(e=>e.toString(16).padStart(2,`0`)).join(``);return[t.slice(0,8),t.slice(8,12),t.slice(12,16),t.slice(16,20),t.slice(20)].join(`-`)}function W(e,t){try{return sessionStorage.setItem(e,t),!0}catch{return K(e),!1}}function G(e){try{return sessionStorage.getItem(e)}catch{return null}}function K(e){try{sessionStorage.removeItem(e)}catch{}}var q={job:{"a job":`# The first job: ten instances that say hello and sleep for a few seconds.
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
# training needs it. When one of them fails all run anew.
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
`,"a controller":`# A controller job, like Spark's driver with its executors: instance 0 is the controller, and how it ends is how the
# job ends. Workers may come and go meanwhile.
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
`,"revocable instances":`# A revocable job: it runs on slack, cpu that other jobs hold and do not use, and leaves when they want it back. Start
# one that idles first (examples/tutorial/sleeper.yaml); \`peloton job why JOB\` says how much slack there is.
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
`,"a daemon, on every host":`# A daemon: one pod on each host, also on hosts that join later. Room for it is kept on each of them.
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
`},service:{"a web service":`# A small web service: three instances on three hosts, each asked for its health, at most one of them down by our doing.
#   peloton job stateless create /tutorial examples/services/web.yaml 1 --watch
# Change something, look at what it does, and roll it out one instance at a time:
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
#   limit        what it never exceeds, even when the rest of the cluster is idle (at most the parent's limit),
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
`}},J=300,Y=3e3,ae=[403,413];function oe(e,t,n){let[i,a]=r({of:null,faults:[]}),[s,c]=r(0);return o(()=>{if(!n)return;let r=!1,i,o=e=>{if(r)return;let i=(e.faults??[]).map(n.inside),o=n.bounds().filter(e=>!i.some(t=>t.line===e.line)),s=[...i,...o].sort((e,t)=>e.line-t.line);n.show(s),a({...e,of:t,faults:s})},s=setTimeout(()=>{k(e,t).then(e=>o({message:e}),e=>{if(e.place)return o({faults:[{...e.place,text:e.message}]});o({failure:e.message}),!r&&!ae.includes(e.status)&&(i=setTimeout(()=>c(e=>e+1),Y))})},J);return()=>{r=!0,clearTimeout(s),clearTimeout(i)}},[e,t,n,s]),i}function se({kind:e,initial:i,changed:a,ready:c}){let l=n(null),[u,d]=r(`loading`);return o(()=>{let t=null,n=!1;return(async()=>{let[{edit:r},o]=await Promise.all([f(()=>import(`./editor-C-vzcZbS.js`),[]),m(`/schemas/${e}.json`)]);n||(t=r(l.current,i,o,`YAML of the ${e}`,`editor-keys`,a),d(`there`),c(t))})().catch(e=>!n&&d({failure:e.message})),()=>{n=!0,t?.close()}},[]),t(s,{children:[u===`loading`&&t(`p`,{class:`quiet`,"aria-busy":`true`,children:`Loading the editor`}),typeof u==`object`&&t(`p`,{class:`stale`,role:`alert`,children:[`The editor could not be loaded, load the page again: `,u.failure]}),t(`div`,{class:`editor`,ref:l}),t(`p`,{class:`quiet`,id:`editor-keys`,children:[t(`kbd`,{children:`Ctrl`}),`+`,t(`kbd`,{children:`Space`}),` completes keys and values. `,t(`kbd`,{children:`Tab`}),` indents; `,t(`kbd`,{children:`Esc`}),` and then `,t(`kbd`,{children:`Tab`}),` leaves the editor.`]})]})}function ce({kind:e,read:{message:n,faults:r,failure:i,of:a},text:o,goTo:s}){return t(`div`,{class:`faults`,role:`status`,children:[i&&t(`p`,{class:`stale`,children:[`Not checked: `,i]}),a===o&&n&&!r.length&&t(`p`,{class:`fine`,children:X(e,n)}),r.length>0&&t(`ul`,{class:`wrong`,children:r.map(e=>t(`li`,{class:`critical`,children:[t(`button`,{type:`button`,class:`plain`,onClick:()=>s(e),children:[`Line `,e.line,`, column `,e.column]}),`: `,e.text]},`${e.line} ${e.column} ${e.text}`))})]})}function X(e,t){let n=t.name||`without a name`;if(e===`pool`)return`The pool ${n}`;let r=t.instanceCount??0;return`The ${e} ${n}, ${r} ${r===1?`instance`:`instances`}`}function le(e){let[t,n]=r({of:``}),i=async t=>{n({of:e,isAsking:!0});try{let{service:r,method:i,request:a}=N(t),o=await c(r,i,a);n({of:e,plan:o,wanted:t})}catch(t){n({of:e,failure:t.message})}};return o(()=>n(t=>t.of===e?t:{of:``}),[e]),{...t.of===e?t:{},ask:i}}function Z(e,t){if(e===`pool`)return`${t.poolPath} ${`isNew`in t&&t.isNew?`would be a new pool`:`exists, creating it will be refused`}`;let{admittedInstances:n=0,waitingInstances:r=0,heldBackInstances:i=0}=t,a=l(n+r+i,`instance`),o=[r&&`${l(r)} would wait`,i&&`${l(i)} would be held back by the maximum of running instances`].filter(Boolean);return[`${l(n)} of ${a} would be admitted now in ${t.poolPath}`,...o].join(`, `)}function ue({wanted:e,plan:n}){let{service:r,method:i,request:a}=N(e);return t(`section`,{"aria-label":`Plan`,children:[t(`h2`,{children:`Plan`}),e.kind===`pool`?t(fe,{plan:n}):t(de,{kind:e.kind,plan:n}),t(S,{title:`This plan from a terminal`,command:re(e),service:r,method:i,request:a})]})}function de({kind:e,plan:n}){let{admittedInstances:r=0,waitingInstances:i=0,heldBackInstances:a=0,evictions:o=[]}=n;return t(s,{children:[t(b,{label:`Instances`,parts:[{name:`admitted`,value:r,tone:`allocation`},{name:`would wait`,value:i,tone:`demand`},{name:`held back`,value:a,tone:`slack`}],whole:r+i+a,text:Z(e,n)}),n.waiting?.length||n.reasons?.length?t(C,{why:n}):null,t(ee,{evictions:o}),!o.length&&t(`p`,{children:`Nothing would be evicted for it.`}),t(`p`,{class:`quiet`,children:[`Which hosts have room at this moment is not part of a plan.`,e===`service`&&` It is of all instances at once: batches, which come one after the other, are not.`]})]})}function fe({plan:e}){return t(s,{children:[e.isNew?t(`p`,{children:[e.poolPath,` would be a new pool.`]}):t(`p`,{class:`stale`,children:[e.poolPath,` exists: this is what changing it to this file would do. Creating it will be refused; `,t(`code`,{children:`peloton respool update`}),` changes it.`]}),t(x,{plan:e}),e.text&&t(`details`,{children:[t(`summary`,{children:`In words`}),t(`p`,{class:`lines`,children:e.text})]})]})}var Q=e=>`peloton-submit-${e}`;function pe(e){return G(Q(e))??Object.values(q[e])[0]}function me({kind:e}){let[n]=r(()=>pe(e)),[i,a]=r(n),[o,c]=r(!0),[l,u]=r(null),[d,f]=r(null),p=oe(e,i,l),m=he(e),[h,g]=r(0),v=p.of===i?p.message:void 0,y=v&&m.id?{kind:e,message:v,pool:m.path,poolId:m.id,batchSize:h}:null,b=le(JSON.stringify([i,m.path,h])),x=$(e,l);return t(s,{children:[t(`div`,{class:`filters`,children:[t(ge,{kind:e,pool:m}),e===`service`&&t(`label`,{children:[`Add at a time`,` `,t(`input`,{type:`number`,min:0,max:1e5,value:h||``,placeholder:`all`,onInput:e=>g(Math.max(0,Math.floor(Number(e.currentTarget.value))))})]}),t(`label`,{children:[`Example`,` `,t(`select`,{value:``,onChange:t=>{l?.replace(q[e][t.currentTarget.value]),t.currentTarget.value=``},children:[t(`option`,{value:``,children:`begin with …`}),Object.keys(q[e]).map(e=>t(`option`,{value:e,children:e},e))]})]}),t(_e,{take:e=>l?.replace(e)})]}),x&&t(`p`,{class:`stale`,role:`alert`,children:x}),m.problem&&t(`p`,{class:`stale`,role:`alert`,children:m.problem}),t(se,{kind:e,initial:n,changed:t=>{a(t),f(null),c(W(Q(e),t))},ready:u}),!o&&t(`p`,{class:`stale`,children:`The text is too large to be kept when the page is loaded again.`}),t(ce,{kind:e,read:p,text:i,goTo:e=>l?.goTo(e)}),m.paths?.length&&!m.path?t(`p`,{class:`quiet`,children:`Choose a pool to plan it or to create it.`}):null,t(`p`,{class:`buttons`,children:[t(`button`,{type:`button`,disabled:!y||b.isAsking,onClick:()=>void b.ask(y),children:`Plan`}),t(ve,{wanted:y,done:f,plan:b.plan&&Z(e,b.plan)})]}),_.value.viewer&&!_.value.mayChange&&t(`p`,{class:`quiet`,children:`You may look and plan, and not create.`}),t(`div`,{"aria-live":`polite`,children:[d&&t(ye,{created:d}),b.isAsking&&t(`p`,{class:`quiet`,"aria-busy":`true`,children:`Planning`}),b.failure&&t(`p`,{class:`stale`,role:`alert`,children:[`It cannot be planned: `,b.failure]}),b.plan&&b.wanted&&t(ue,{wanted:b.wanted,plan:b.plan})]}),t(be,{wanted:y,kind:e})]})}function $(t,n){let i=t===`pool`?``:p(`from`),[a,s]=r(``);return o(()=>{i&&n&&A(t,i).then(t=>{n.replace(t),e({from:``})},e=>s(`The ${t} ${i} could not be read: ${e.message}`))},[i,n]),a}function he(e){let{value:t}=i(`pools`),n=t?.filter(([t,,n])=>e===`pool`||n&&t!==`/`).map(([e])=>e),r=e===`pool`?`/`:n?.length===1?n[0]:``,a=p(e===`pool`?`parent`:`pool`)||r,{value:o,error:s}=y(a,async()=>a?{path:a,id:await j(a,e)}:null);return{path:a,paths:n,id:o?.path===a?o.id:void 0,problem:a?s?.message:void 0}}function ge({kind:n,pool:r}){return n!==`pool`&&r.paths?.length===0&&!r.path?t(`p`,{children:[`There is no pool yet, and `,n,`s run in pools: `,t(`a`,{href:`/submit?kind=pool`,children:`create one`}),`.`]}):t(`label`,{children:[ne[n],` `,t(`input`,{list:`pool-paths`,value:r.path,placeholder:`/path`,required:!0,"aria-invalid":!!r.problem,spellcheck:!1,autocomplete:`off`,onChange:t=>e({[n===`pool`?`parent`:`pool`]:t.currentTarget.value.trim()})}),t(`datalist`,{id:`pool-paths`,children:(r.paths??[]).map(e=>t(`option`,{value:e},e))})]})}function _e({take:e}){let r=n(null);return t(s,{children:[t(`input`,{ref:r,type:`file`,accept:`.yaml,.yml`,hidden:!0,onChange:async()=>{let t=r.current.files?.[0];t&&e(await t.text()),r.current.value=``}}),t(`button`,{type:`button`,onClick:()=>r.current.click(),children:`Open a file`})]})}function ve({wanted:e,plan:r,done:i}){let s=n(null);o(()=>{e&&(s.current=e)},[e]);let c=e??s.current,l=c?.message.name||`it`;return t(v,{label:`Create`,title:`Create ${l}?`,act:async()=>{let t=await V(e);t.warnings.length?i(t):a(t.href)},disabled:!e,children:[c&&t(`p`,{children:[X(c.kind,c.message),`, `,c.kind===`pool`?`as ${I(c.pool,c.message.name)}`:`in ${c.pool}`,c.batchSize?`, ${c.batchSize} at a time`:``,`.`]}),r?t(`p`,{children:[`By its plan: `,r,`.`]}):t(`p`,{class:`quiet`,children:`What would become of it has not been planned.`})]})}function ye({created:e}){return t(`section`,{role:`status`,children:[t(`p`,{class:`fine`,children:[`Created: `,t(`a`,{href:e.href,children:e.name})]}),t(`ul`,{class:`wrong`,children:e.warnings.map(e=>t(`li`,{class:`warning`,children:[t(`strong`,{children:`Warning`}),`: `,e]},e))})]})}function be({wanted:e,kind:n}){let r=e??{kind:n,message:{name:`NAME`},pool:`/POOL`,poolId:`POOL-ID`,batchSize:0},{service:i,method:a,request:o}=P(r.message.parent?{...r,message:{...r.message,parent:void 0}}:r);return t(S,{title:`Creating it from a terminal`,command:ie(r),service:i,method:a,request:o})}function xe(){let e=O.find(e=>e===p(`kind`))??`job`;return t(s,{children:[t(`h1`,{children:`Submit`}),t(`nav`,{class:`tabs`,"aria-label":`What to submit`,children:O.map(n=>t(`a`,{href:Se(n),"aria-current":n===e?`page`:void 0,children:n[0].toUpperCase()+n.slice(1)},n))}),t(me,{kind:e},e)]})}function Se(e){let t=new URLSearchParams({kind:e});for(let e of[`pool`,`parent`])p(e)&&t.set(e,p(e));return`/submit?${t}`}export{xe as default};