import{A as e,C as t,F as n,I as r,M as i,O as a,P as o,R as s,_ as c,d as l,g as u,i as d,j as f,k as p,v as m}from"./index-LYgdY10e.js";import{t as h}from"./service-DcvkCBwf.js";import{r as g}from"./jobs-D8Fdr5Ny.js";import{n as _,t as v}from"./confirm-CkDQbhno.js";import{t as y}from"./asked-M74K2TOv.js";import{t as b}from"./bar-CsAyrjfg.js";import{n as x,t as S}from"./pool-plan-5Z2LhHmr.js";import{t as C}from"./same-as-BfcgHWue.js";import{t as w}from"./why-D55OnYGm.js";var T=`peloton.api.v0.explain.ExplainService`,E=`peloton.api.respool.ResourceManager`,ee=[`unavailable`,`deadline_exceeded`,`canceled`,`unknown`,`internal`,`502`,`503`,`504`],te=[`already_exists`,`alreadyExists`],ne={invalidConfig:`Invalid job config: `,invalidResourcePoolConfig:`Invalid resource pool config: `},D=[`changeLog`,`revision`,`respoolID`,`respoolId`],O=`APIs are locked down`,k=[`job`,`service`,`pool`],A={job:`Pool`,service:`Pool`,pool:`Below the pool`};async function j(e,t){return(await m(`/files/${e}`,{method:`POST`,headers:{"content-type":`application/yaml`},body:t})).message}async function M(e,t){let n=e===`service`?await c(h,`GetJob`,{jobId:{value:t}}):await c(g,`Get`,{id:{value:t}}),r=e===`service`?n.jobInfo?.spec:n.jobInfo?.config;if(!r)throw Error(`there is no ${e} ${t}`);let i=Object.fromEntries(Object.entries(r).filter(([e])=>!D.includes(e)));return i.type===`DAEMON`&&delete i.instanceCount,(await m(`/files/${e}`,{method:`POST`,headers:{"content-type":`application/json`},body:JSON.stringify(i)})).text}async function N(e,t){try{return(await c(E,`LookupResourcePoolID`,{path:{value:e}})).id.value}catch(n){let{code:r,message:i}=n;throw new u(r,`unable to find ${t===`pool`?`parent`:`resource pool`} ${e}: ${i}`)}}function P({kind:e,message:t,poolId:n}){if(e===`job`)return{...t,respoolID:{value:n}};if(e===`service`)return{...t,respoolId:{value:n}};if(t.parent)throw Error(`parent should not be supplied in the config`);return{...t,parent:{value:n}}}function F(e){let t=P(e);return e.kind===`pool`?{service:T,method:`PoolPlan`,request:{config:t}}:{service:T,method:`JobPlan`,request:e.kind===`service`?{spec:t}:{config:t}}}function I(e,t=``){let n=P(e),r=t&&{value:t};if(e.kind===`pool`)return{service:E,method:`CreateResourcePool`,request:{config:n}};if(e.kind===`job`)return{service:g,method:`Create`,request:{...r&&{id:r},config:n}};let i=e.batchSize?{createSpec:{batchSize:e.batchSize}}:{};return{service:h,method:`CreateJob`,request:{...r&&{jobId:r},spec:n,...i}}}function re({kind:e,pool:t}){return e===`pool`?`peloton respool plan pool.yaml${t===`/`?``:` --parent ${L(t)}`}`:e===`service`?`peloton job stateless plan ${L(t)} service.yaml`:`peloton job plan ${L(t)} job.yaml`}function ie({kind:e,pool:t,message:n,batchSize:r}){return e===`pool`?`peloton respool create ${L(R(t,n.name))} pool.yaml`:e===`job`?`peloton job create ${L(t)} job.yaml --watch`:`peloton job stateless create ${L(t)} service.yaml${r?` ${r}`:``} --watch`}function L(e){return/^[\w,./=:-]+$/.test(e)?e:`'${e.replaceAll(`'`,`'\\''`)}'`}function R(e,t){return`${e===`/`?``:e}/${t??``}`}var z=new Map,B=e=>`peloton-submit-try-${e}`;function V(e){let t=K(B(e));return z.get(e)??(t?JSON.parse(t):null)}function H(e,t){t?(z.set(e,t),G(B(e),JSON.stringify(t))):(z.delete(e),q(B(e)))}async function U(e){let{kind:t,message:n,pool:r}=e,i=JSON.stringify([e.pool,e.batchSize,n]),a=V(t),o=a?.what===i,s=o?a.id:W(),l={href:t===`pool`?d(R(r,n.name)):`/${t}s/${s}`,name:n.name||s,warnings:[]};H(t,{id:s,what:i});try{let{service:t,method:n,request:r}=I(e,s);l.warnings=(await c(t,n,r)).warnings??[]}catch(e){let n=e;if(ee.includes(n.code)&&!n.message.includes(O))throw new u(n.code,`${n.message}. Whether it was created is not known: create it again, which makes no second one.`);if(o||H(t,null),!(o&&te.includes(n.code)))throw new u(n.code,`${ne[n.code]??``}${n.message}`)}return H(t,null),l}function W(){let e=crypto.getRandomValues(new Uint8Array(16));e[6]=e[6]&15|64,e[8]=e[8]&63|128;let t=[...e].map(e=>e.toString(16).padStart(2,`0`)).join(``);return[t.slice(0,8),t.slice(8,12),t.slice(12,16),t.slice(16,20),t.slice(20)].join(`-`)}function G(e,t){try{return sessionStorage.setItem(e,t),!0}catch{return q(e),!1}}function K(e){try{return sessionStorage.getItem(e)}catch{return null}}function q(e){try{sessionStorage.removeItem(e)}catch{}}var J={job:{"a job":`# The first job: ten instances that say hello and sleep for a few seconds.
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
`}},Y=300,ae=3e3,oe=[403,413];function se(e,t,n){let[i,a]=r({of:null,faults:[]}),[s,c]=r(0);return o(()=>{if(!n)return;let r=!1,i,o=e=>{if(r)return;let i=(e.faults??[]).map(n.inside),o=n.bounds().filter(e=>!i.some(t=>t.line===e.line)),s=[...i,...o].sort((e,t)=>e.line-t.line);n.show(s),a({...e,of:t,faults:s})},s=setTimeout(()=>{j(e,t).then(e=>o({message:e}),e=>{if(e.place)return o({faults:[{...e.place,text:e.message}]});o({failure:e.message}),!r&&!oe.includes(e.status)&&(i=setTimeout(()=>c(e=>e+1),ae))})},Y);return()=>{r=!0,clearTimeout(s),clearTimeout(i)}},[e,t,n,s]),i}function ce({kind:e,initial:i,changed:a,ready:c}){let l=n(null),[u,d]=r(`loading`);return o(()=>{let t=null,n=!1;return(async()=>{let[{edit:r},o]=await Promise.all([f(()=>import(`./editor-C-vzcZbS.js`),[]),m(`/schemas/${e}.json`)]);n||(t=r(l.current,i,o,`YAML of the ${e}`,`editor-keys`,a),d(`there`),c(t))})().catch(e=>!n&&d({failure:e.message})),()=>{n=!0,t?.close()}},[]),t(s,{children:[u===`loading`&&t(`p`,{class:`quiet`,"aria-busy":`true`,children:`Loading the editor`}),typeof u==`object`&&t(`p`,{class:`stale`,role:`alert`,children:[`The editor could not be loaded, load the page again: `,u.failure]}),t(`div`,{class:`editor`,ref:l}),t(`p`,{class:`quiet`,id:`editor-keys`,children:[t(`kbd`,{children:`Ctrl`}),`+`,t(`kbd`,{children:`Space`}),` completes keys and values. `,t(`kbd`,{children:`Tab`}),` indents; `,t(`kbd`,{children:`Esc`}),` and then `,t(`kbd`,{children:`Tab`}),` leaves the editor.`]})]})}function le({kind:e,read:{message:n,faults:r,failure:i,of:a},text:o,goTo:s}){return t(`div`,{class:`faults`,role:`status`,children:[i&&t(`p`,{class:`stale`,children:[`Not checked: `,i]}),a===o&&n&&!r.length&&t(`p`,{class:`fine`,children:X(e,n)}),r.length>0&&t(`ul`,{class:`wrong`,children:r.map(e=>t(`li`,{class:`critical`,children:[t(`button`,{type:`button`,class:`plain`,onClick:()=>s(e),children:[`Line `,e.line,`, column `,e.column]}),`: `,e.text]},`${e.line} ${e.column} ${e.text}`))})]})}function X(e,t){let n=t.name||`without a name`;if(e===`pool`)return`The pool ${n}`;let r=t.instanceCount??0;return`The ${e} ${n}, ${r} ${r===1?`instance`:`instances`}`}function ue(e){let[t,n]=r({of:``}),i=async t=>{n({of:e,isAsking:!0});try{let{service:r,method:i,request:a}=F(t),o=await c(r,i,a);n({of:e,plan:o,wanted:t})}catch(t){n({of:e,failure:t.message})}};return o(()=>n(t=>t.of===e?t:{of:``}),[e]),{...t.of===e?t:{},ask:i}}function Z(e,t){if(e===`pool`)return`${t.poolPath} ${`isNew`in t&&t.isNew?`would be a new pool`:`exists, creating it will be refused`}`;let{admittedInstances:n=0,waitingInstances:r=0,heldBackInstances:i=0}=t,a=l(n+r+i,`instance`),o=[r&&`${l(r)} would wait`,i&&`${l(i)} would be held back by the maximum of running instances`].filter(Boolean);return[`${l(n)} of ${a} would be admitted now in ${t.poolPath}`,...o].join(`, `)}function de({wanted:e,plan:n}){let{service:r,method:i,request:a}=F(e);return t(`section`,{"aria-label":`Plan`,children:[t(`h2`,{children:`Plan`}),e.kind===`pool`?t(pe,{plan:n}):t(fe,{kind:e.kind,plan:n}),t(C,{title:`This plan from a terminal`,command:re(e),service:r,method:i,request:a})]})}function fe({kind:e,plan:n}){let{admittedInstances:r=0,waitingInstances:i=0,heldBackInstances:a=0,evictions:o=[]}=n;return t(s,{children:[t(b,{label:`Instances`,parts:[{name:`admitted`,value:r,tone:`allocation`},{name:`would wait`,value:i,tone:`demand`},{name:`held back`,value:a,tone:`slack`}],whole:r+i+a,text:Z(e,n)}),n.waiting?.length||n.reasons?.length?t(w,{why:n}):null,t(S,{evictions:o}),!o.length&&t(`p`,{children:`Nothing would be evicted for it.`}),t(`p`,{class:`quiet`,children:[`Which hosts have room at this moment is not part of a plan.`,e===`service`&&` It is of all instances at once: batches, which come one after the other, are not.`]})]})}function pe({plan:e}){return t(s,{children:[e.isNew?t(`p`,{children:[e.poolPath,` would be a new pool.`]}):t(`p`,{class:`stale`,children:[e.poolPath,` exists: this is what changing it to this file would do. Creating it will be refused; `,t(`code`,{children:`peloton respool update`}),` changes it.`]}),t(x,{plan:e}),e.text&&t(`details`,{children:[t(`summary`,{children:`In words`}),t(`p`,{class:`lines`,children:e.text})]})]})}var Q=e=>`peloton-submit-${e}`;function $(e){return K(Q(e))??Object.values(J[e])[0]}function me({kind:e}){let[n]=r(()=>$(e)),[i,a]=r(n),[o,c]=r(!0),[l,u]=r(null),[d,f]=r(null),p=se(e,i,l),m=ge(e),[h,g]=r(0),v=p.of===i?p.message:void 0,y=v&&m.id?{kind:e,message:v,pool:m.path,poolId:m.id,batchSize:h}:null,b=ue(JSON.stringify([i,m.path,h])),x=he(e,l);return t(s,{children:[t(`div`,{class:`filters`,children:[t(_e,{kind:e,pool:m}),e===`service`&&t(`label`,{children:[`Add at a time`,` `,t(`input`,{type:`number`,min:0,max:1e5,value:h||``,placeholder:`all`,onInput:e=>g(Math.max(0,Math.floor(Number(e.currentTarget.value))))})]}),t(`label`,{children:[`Example`,` `,t(`select`,{value:``,onChange:t=>{l?.replace(J[e][t.currentTarget.value]),t.currentTarget.value=``},children:[t(`option`,{value:``,children:`begin with …`}),Object.keys(J[e]).map(e=>t(`option`,{value:e,children:e},e))]})]}),t(ve,{take:e=>l?.replace(e)})]}),x&&t(`p`,{class:`stale`,role:`alert`,children:x}),m.problem&&t(`p`,{class:`stale`,role:`alert`,children:m.problem}),t(ce,{kind:e,initial:n,changed:t=>{a(t),f(null),c(G(Q(e),t))},ready:u}),!o&&t(`p`,{class:`stale`,children:`The text is too large to be kept when the page is loaded again.`}),t(le,{kind:e,read:p,text:i,goTo:e=>l?.goTo(e)}),m.paths?.length&&!m.path?t(`p`,{class:`quiet`,children:`Choose a pool to plan it or to create it.`}):null,t(`p`,{class:`buttons`,children:[t(`button`,{type:`button`,disabled:!y||b.isAsking,onClick:()=>void b.ask(y),children:`Plan`}),t(ye,{wanted:y,done:f,plan:b.plan&&Z(e,b.plan)})]}),_.value.viewer&&!_.value.mayChange&&t(`p`,{class:`quiet`,children:`You may look and plan, and not create.`}),t(`div`,{"aria-live":`polite`,children:[d&&t(be,{created:d}),b.isAsking&&t(`p`,{class:`quiet`,"aria-busy":`true`,children:`Planning`}),b.failure&&t(`p`,{class:`stale`,role:`alert`,children:[`It cannot be planned: `,b.failure]}),b.plan&&b.wanted&&t(de,{wanted:b.wanted,plan:b.plan})]}),t(xe,{wanted:y,kind:e})]})}function he(t,n){let i=t===`pool`?``:p(`from`),[a,s]=r(``);return o(()=>{if(!i||!n)return;let r=!1;return M(t,i).then(t=>{r||(n.replace(t),e({from:``}))},e=>!r&&s(`The ${t} ${i} could not be read: ${e.message}`)),()=>{r=!0}},[i,n]),a}function ge(e){let{value:t}=i(`pools`),n=t?.filter(([t,,n])=>e===`pool`||n&&t!==`/`).map(([e])=>e),r=e===`pool`?`/`:n?.length===1?n[0]:``,a=p(e===`pool`?`parent`:`pool`)||r,{value:o,error:s}=y(a,async()=>a?{path:a,id:await N(a,e)}:null);return{path:a,paths:n,id:o?.path===a?o.id:void 0,problem:a?s?.message:void 0}}function _e({kind:n,pool:r}){return n!==`pool`&&r.paths?.length===0&&!r.path?t(`p`,{children:[`There is no pool yet, and `,n,`s run in pools: `,t(`a`,{href:`/submit?kind=pool`,children:`create one`}),`.`]}):t(`label`,{children:[A[n],` `,t(`input`,{list:`pool-paths`,value:r.path,placeholder:`/path`,required:!0,"aria-invalid":!!r.problem,spellcheck:!1,autocomplete:`off`,onChange:t=>e({[n===`pool`?`parent`:`pool`]:t.currentTarget.value.trim()})}),t(`datalist`,{id:`pool-paths`,children:(r.paths??[]).map(e=>t(`option`,{value:e},e))})]})}function ve({take:e}){let r=n(null);return t(s,{children:[t(`input`,{ref:r,type:`file`,accept:`.yaml,.yml`,hidden:!0,onChange:async()=>{let t=r.current.files?.[0];t&&e(await t.text()),r.current.value=``}}),t(`button`,{type:`button`,onClick:()=>r.current.click(),children:`Open a file`})]})}function ye({wanted:e,plan:r,done:i}){let s=n(null);o(()=>{e&&(s.current=e)},[e]);let c=e??s.current,l=c?.message.name||`it`;return t(v,{label:`Create`,title:`Create ${l}?`,act:async()=>{let t=await U(e);t.warnings.length?i(t):a(t.href)},disabled:!e,children:[c&&t(`p`,{children:[X(c.kind,c.message),`, `,c.kind===`pool`?`as ${R(c.pool,c.message.name)}`:`in ${c.pool}`,c.batchSize?`, ${c.batchSize} at a time`:``,`.`]}),r?t(`p`,{children:[`By its plan: `,r,`.`]}):t(`p`,{class:`quiet`,children:`What would become of it has not been planned.`})]})}function be({created:e}){return t(`section`,{role:`status`,children:[t(`p`,{class:`fine`,children:[`Created: `,t(`a`,{href:e.href,children:e.name})]}),t(`ul`,{class:`wrong`,children:e.warnings.map(e=>t(`li`,{class:`warning`,children:[t(`strong`,{children:`Warning`}),`: `,e]},e))})]})}function xe({wanted:e,kind:n}){let r=e??{kind:n,message:{name:`NAME`},pool:`/POOL`,poolId:`POOL-ID`,batchSize:0},{service:i,method:a,request:o}=I(r.message.parent?{...r,message:{...r.message,parent:void 0}}:r);return t(C,{title:`Creating it from a terminal`,command:ie(r),service:i,method:a,request:o})}function Se(){let e=k.find(e=>e===p(`kind`))??`job`;return t(s,{children:[t(`h1`,{children:`Submit`}),t(`nav`,{class:`tabs`,"aria-label":`What to submit`,children:k.map(n=>t(`a`,{href:Ce(n),"aria-current":n===e?`page`:void 0,children:n[0].toUpperCase()+n.slice(1)},n))}),t(me,{kind:e},e)]})}function Ce(e){let t=new URLSearchParams({kind:e});for(let e of[`pool`,`parent`])p(e)&&t.set(e,p(e));return`/submit?${t}`}export{Se as default};