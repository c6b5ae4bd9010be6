import{B as e,G as t,H as n,J as r,K as i,L as a,M as o,T as s,U as c,d as l,f as u,i as d,p as f,y as p,z as m}from"./index-D_5SlByk.js";import{t as h}from"./service-B2Ybc5Ej.js";import{r as g}from"./jobs-Zn7vox91.js";import{t as _}from"./settings-CC4qUgVO.js";import{t as v}from"./asked-BnD8kP3D.js";import{t as y}from"./confirm-CDidA6e8.js";import{t as b}from"./bar-C45qx7vP.js";import{n as x,t as ee}from"./pool-plan-DcNgUfAH.js";import{t as S}from"./same-as-DDUvM3h4.js";import{t as C}from"./why-D5NI1rD2.js";import{t as w}from"./typed-DWPIzaxA.js";var T=`peloton.api.v0.explain.ExplainService`,E=`peloton.api.respool.ResourceManager`,D=[`unavailable`,`deadline_exceeded`,`canceled`,`unknown`,`internal`,`502`,`503`,`504`],te=[`already_exists`,`alreadyExists`],ne={invalidConfig:`Invalid job config: `,invalidResourcePoolConfig:`Invalid resource pool config: `},O=[`changeLog`,`revision`,`respoolID`,`respoolId`],re=`APIs are locked down`,k=[`job`,`service`,`pool`],A={job:`Pool`,service:`Pool`,pool:`Below the pool`};async function j(e,t){return(await f(`/files/${e}`,{method:`POST`,headers:{"content-type":`application/yaml`},body:t})).message}async function M(e,t){let n=e===`service`?await u(h,`GetJob`,{jobId:{value:t}}):await u(g,`Get`,{id:{value:t}}),r=e===`service`?n.jobInfo?.spec:n.jobInfo?.config;if(!r)throw Error(`there is no ${e} ${t}`);let i=Object.fromEntries(Object.entries(r).filter(([e])=>!O.includes(e)));return i.type===`DAEMON`&&delete i.instanceCount,(await f(`/files/${e}`,{method:`POST`,headers:{"content-type":`application/json`},body:JSON.stringify(i)})).text}async function N(e,t){try{return(await u(E,`LookupResourcePoolID`,{path:{value:e}})).id.value}catch(n){let{code:r,message:i}=n;throw new l(r,`unable to find ${t===`pool`?`parent`:`resource pool`} ${e}: ${i}`)}}function P({kind:e,message:t,poolId:n}){if(e===`job`)return{...t,respoolID:{value:n}};if(e===`service`)return{...t,respoolId:{value:n}};if(t.parent)throw Error(`parent should not be supplied in the config`);return{...t,parent:{value:n}}}function F(e){let t=P(e);return e.kind===`pool`?{service:T,method:`PoolPlan`,request:{config:t}}:{service:T,method:`JobPlan`,request:e.kind===`service`?{spec:t}:{config:t}}}function I(e,t=``){let n=P(e),r=t&&{value:t};if(e.kind===`pool`)return{service:E,method:`CreateResourcePool`,request:{config:n}};if(e.kind===`job`)return{service:g,method:`Create`,request:{...r&&{id:r},config:n}};let i=e.batchSize?{createSpec:{batchSize:e.batchSize}}:{};return{service:h,method:`CreateJob`,request:{...r&&{jobId:r},spec:n,...i}}}function ie({kind:e,pool:t}){return e===`pool`?`peloton respool plan pool.yaml${t===`/`?``:` --parent ${L(t)}`}`:e===`service`?`peloton job stateless plan ${L(t)} service.yaml`:`peloton job plan ${L(t)} job.yaml`}function ae({kind:e,pool:t,message:n,batchSize:r}){return e===`pool`?`peloton respool create ${L(R(t,n.name))} pool.yaml`:e===`job`?`peloton job create ${L(t)} job.yaml --watch`:`peloton job stateless create ${L(t)} service.yaml${r?` ${r}`:``} --watch`}function L(e){return/^[\w,./=:-]+$/.test(e)?e:`'${e.replaceAll(`'`,`'\\''`)}'`}function R(e,t){return`${e===`/`?``:e}/${t??``}`}var z=new Map,B=e=>`peloton-submit-try-${e}`;function V(e){let t=K(B(e));return z.get(e)??(t?JSON.parse(t):null)}function H(e,t){t?(z.set(e,t),G(B(e),JSON.stringify(t))):(z.delete(e),q(B(e)))}async function U(e){let{kind:t,message:n,pool:r}=e,i=JSON.stringify([e.pool,e.batchSize,n]),a=V(t),o=a?.what===i,s=o?a.id:W(),c={href:t===`pool`?d(R(r,n.name)):`/${t}s/${s}`,name:n.name||s,warnings:[]};H(t,{id:s,what:i});try{let{service:t,method:n,request:r}=I(e,s);c.warnings=(await u(t,n,r)).warnings??[]}catch(e){let n=e;if(D.includes(n.code)&&!n.message.includes(re))throw new l(n.code,`${n.message}. Whether it was created is not known: create it again, which makes no second one.`);if(o||H(t,null),!(o&&te.includes(n.code)))throw new l(n.code,`${ne[n.code]??``}${n.message}`)}return H(t,null),c}function W(){let e=crypto.getRandomValues(new Uint8Array(16));e[6]=e[6]&15|64,e[8]=e[8]&63|128;let t=[...e].map(e=>e.toString(16).padStart(2,`0`)).join(``);return[t.slice(0,8),t.slice(8,12),t.slice(12,16),t.slice(16,20),t.slice(20)].join(`-`)}function G(e,t){try{return sessionStorage.setItem(e,t),!0}catch{return q(e),!1}}function K(e){try{return sessionStorage.getItem(e)}catch{return null}}function q(e){try{sessionStorage.removeItem(e)}catch{}}var J={job:{"a job":`# The first job: ten instances that say hello and sleep for a few seconds.
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
`}},oe=300,se=3e3,ce=[403,413];function le(e,t,n){let[r,a]=i({of:null,faults:[]}),[o,s]=i(0);return c(()=>{if(!n)return;let r=!1,i,o=e=>{if(r)return;let i=(e.faults??[]).map(n.inside),o=n.bounds().filter(e=>!i.some(t=>t.line===e.line)),s=[...i,...o].sort((e,t)=>e.line-t.line);n.show(s),a({...e,of:t,faults:s})},c=setTimeout(()=>{j(e,t).then(e=>o({message:e}),e=>{if(e.place)return o({faults:[{...e.place,text:e.message}]});o({failure:e.message}),!r&&!ce.includes(e.status)&&(i=setTimeout(()=>s(e=>e+1),se))})},oe);return()=>{r=!0,clearTimeout(c),clearTimeout(i)}},[e,t,n,o]),r}function ue({kind:e,initial:a,changed:o,ready:s}){let l=t(null),[u,d]=i(`loading`);return c(()=>{let t=null,r=!1;return(async()=>{let[{edit:i},c]=await Promise.all([n(()=>import(`./editor-Bg_NcfKq.js`),[]),f(`/schemas/${e}.json`)]);r||(t=i(l.current,a,c,`YAML of the ${e}`,`editor-keys`,o),d(`there`),s(t))})().catch(e=>!r&&d({failure:e.message})),()=>{r=!0,t?.close()}},[]),p(r,{children:[u===`loading`&&p(`p`,{class:`quiet`,"aria-busy":`true`,children:`Loading the editor`}),typeof u==`object`&&p(`p`,{class:`stale`,role:`alert`,children:[`The editor could not be loaded, load the page again: `,u.failure]}),p(`div`,{class:`editor`,ref:l}),p(`p`,{class:`quiet`,id:`editor-keys`,children:[p(`kbd`,{children:`Ctrl`}),`+`,p(`kbd`,{children:`Space`}),` completes keys and values. `,p(`kbd`,{children:`Tab`}),` indents; `,p(`kbd`,{children:`Esc`}),` and then `,p(`kbd`,{children:`Tab`}),` leaves the editor.`]})]})}function de({kind:e,read:{message:t,faults:n,failure:r,of:i},text:a,goTo:o}){return p(`div`,{class:`faults`,role:`status`,children:[r&&p(`p`,{class:`stale`,children:[`Not checked: `,r]}),i===a&&t&&!n.length&&p(`p`,{class:`fine`,children:Y(e,t)}),n.length>0&&p(`ul`,{class:`wrong`,children:n.map(e=>p(`li`,{class:`critical`,children:[p(`button`,{type:`button`,class:`plain`,onClick:()=>o(e),children:[`Line `,e.line,`, column `,e.column]}),`: `,e.text]},`${e.line} ${e.column} ${e.text}`))})]})}function Y(e,t){let n=t.name||`without a name`;if(e===`pool`)return`The pool ${n}`;let r=t.instanceCount??0;return`The ${e} ${n}, ${r} ${r===1?`instance`:`instances`}`}function X(e){let[t,n]=i({of:``}),r=async t=>{n({of:e,isAsking:!0});try{let{service:r,method:i,request:a}=F(t),o=await u(r,i,a);n({of:e,plan:o,wanted:t})}catch(t){n({of:e,failure:t.message})}};return c(()=>n(t=>t.of===e?t:{of:``}),[e]),{...t.of===e?t:{},ask:r}}function Z(e,t){if(e===`pool`)return`${t.poolPath} ${`isNew`in t&&t.isNew?`would be a new pool`:`exists, creating it will be refused`}`;let{admittedInstances:n=0,waitingInstances:r=0,heldBackInstances:i=0,room:a,daemon:o}=t;if(o?.length)return`a daemon: ${o.map(Q).join(`; `)}`;let c=s(n+r+i,`instance`),l=[r&&`${s(r)} would wait`,i&&`${s(i)} would be held back by the maximum of running instances`].filter(Boolean);return a?.hostlessInstances&&l.unshift(`${s(a.hostlessInstances)} of these would wait for a host`),[`${s(n)} of ${c} would be admitted now in ${t.poolPath}`,...l].join(`, `)}function Q({cluster:e,notKnown:t,hosts:n=0,matchingHosts:r=0,hostsWithRoom:i=0}){let a=e?`cluster ${e}: `:``;return t?`${a}not known: ${t}`:`${a}${s(r)} of ${s(n,`host`)} match, ${s(i)} with room for it now`}function fe({wanted:e,plan:t}){let{service:n,method:r,request:i}=F(e);return p(`section`,{"aria-label":`Plan`,children:[p(`h2`,{children:`Plan`}),e.kind===`pool`?p(ge,{plan:t}):p(me,{kind:e.kind,plan:t}),p(S,{title:`This plan from a terminal`,command:ie(e),service:n,method:r,request:i})]})}var pe=e=>e.split(`
`).map(e=>e.charAt(0).toUpperCase()+e.slice(1)).join(`
`);function me({kind:e,plan:t}){let{admittedInstances:n=0,waitingInstances:i=0,heldBackInstances:a=0,evictions:o=[],room:s}=t;return t.daemon?.length?p(he,{plan:t,clusters:t.daemon}):p(r,{children:[p(b,{label:`Instances`,parts:[{name:`admitted`,value:n,tone:`allocation`},{name:`would wait`,value:i,tone:`demand`},{name:`held back`,value:a,tone:`slack`}],whole:n+i+a,text:Z(e,t)}),s?.text&&p(`p`,{class:s.notKnown?`lines stale`:`lines`,children:pe(s.text)}),t.waiting?.length||t.reasons?.length?p(C,{why:t}):null,p(ee,{evictions:o,names:t.jobNames}),!o.length&&p(`p`,{children:`Nothing would be evicted for it.`}),e===`service`&&p(`p`,{class:`quiet`,children:`It is of all instances at once: batches, which come one after the other, are not part of a plan.`})]})}function he({plan:e,clusters:t}){return p(r,{children:[t.filter(e=>!e.notKnown).map(e=>{let t=[{name:`run at once`,value:e.hostsWithRoom??0,tone:`allocation`},{name:`after evictions`,value:e.evictingHosts??0,tone:`slack`},{name:`later`,value:(e.waitingHosts??0)+(e.uncheckedHosts??0)+(e.hostsInMaintenance??0),tone:`demand`}];return p(b,{label:e.cluster||`Hosts`,parts:t,whole:e.hosts??0,text:Q(e)},e.cluster)}),p(`p`,{class:t.some(e=>e.notKnown)?`lines stale`:`lines`,children:e.text})]})}function ge({plan:e}){return p(r,{children:[e.isNew?p(`p`,{children:[e.poolPath,` would be a new pool.`]}):p(`p`,{class:`stale`,children:[e.poolPath,` exists: this is what changing it to this file would do. Creating it will be refused; `,p(`code`,{children:`peloton respool update`}),` changes it.`]}),p(x,{plan:e}),e.text&&p(`details`,{children:[p(`summary`,{children:`In words`}),p(`p`,{class:`lines`,children:e.text})]})]})}var $=e=>`peloton-submit-${e}`;function _e(e){return K($(e))??Object.values(J[e])[0]}function ve({kind:e}){let[t]=i(()=>_e(e)),[n,a]=i(t),[o,s]=i(!0),[c,l]=i(null),[u,d]=i(null),f=le(e,n,c),m=be(e),[h,g]=i(0),v=f.of===n?f.message:void 0,y=v&&m.id?{kind:e,message:v,pool:m.path,poolId:m.id,batchSize:h}:null,b=X(JSON.stringify([n,m.path,h])),x=ye(e,c);return p(r,{children:[p(`div`,{class:`filters`,children:[p(xe,{kind:e,pool:m}),e===`service`&&p(`label`,{children:[`Add at a time`,` `,p(`input`,{type:`number`,min:0,max:1e5,value:h||``,placeholder:`all`,onInput:e=>g(Math.max(0,Math.floor(Number(e.currentTarget.value))))})]}),p(`label`,{children:[`Example`,` `,p(`select`,{value:``,onChange:t=>{c?.replace(J[e][t.currentTarget.value]),t.currentTarget.value=``},children:[p(`option`,{value:``,children:`begin with …`}),Object.keys(J[e]).map(e=>p(`option`,{value:e,children:e},e))]})]}),p(Se,{take:e=>c?.replace(e)})]}),x&&p(`p`,{class:`stale`,role:`alert`,children:x}),m.away?p(`p`,{class:`stale`,role:`alert`,children:[`It can be written now, and neither planned nor created: `,m.away]}):m.problem&&p(`p`,{class:`stale`,role:`alert`,children:m.problem}),p(ue,{kind:e,initial:t,changed:t=>{a(t),d(null),s(G($(e),t))},ready:l}),!o&&p(`p`,{class:`stale`,children:`The text is too large to be kept when the page is loaded again.`}),p(de,{kind:e,read:f,text:n,goTo:e=>c?.goTo(e)}),m.paths?.length&&!m.path?p(`p`,{class:`quiet`,children:`Choose a pool to plan it or to create it.`}):null,p(`p`,{class:`buttons`,children:[p(`button`,{type:`button`,disabled:!y||b.isAsking,onClick:()=>void b.ask(y),children:`Plan`}),p(Ce,{wanted:y,done:d,plan:b.plan&&Z(e,b.plan)})]}),_.value.viewer&&!_.value.mayChange&&p(`p`,{class:`quiet`,children:`You may look and plan, and not create.`}),p(`div`,{"aria-live":`polite`,children:[u&&p(we,{created:u}),b.isAsking&&p(`p`,{class:`quiet`,"aria-busy":`true`,children:`Planning`}),b.failure&&p(`p`,{class:`stale`,role:`alert`,children:[`It cannot be planned: `,b.failure]}),b.plan&&b.wanted&&p(fe,{wanted:b.wanted,plan:b.plan})]}),p(Te,{wanted:y,kind:e})]})}function ye(t,n){let r=t===`pool`?``:m(`from`),[a,o]=i(``);return c(()=>{if(!r||!n)return;let i=!1;return M(t,r).then(t=>{i||(n.replace(t),e({from:``}))},e=>!i&&o(`The ${t} ${r} could not be read: ${e.message}`)),()=>{i=!0}},[r,n]),a}function be(e){let{value:t,error:n}=o(`pools`),r=t?.filter(([t,,n])=>e===`pool`||n&&t!==`/`).map(([e])=>e),i=e===`pool`?`/`:r?.length===1?r[0]:``,a=m(e===`pool`?`parent`:`pool`)||i,{value:s,error:c}=v(a,async()=>a?{path:a,id:await N(a,e)}:null);return{path:a,paths:r,id:s?.path===a?s.id:void 0,away:n?.message,problem:a?c?.message:void 0}}function xe({kind:t,pool:n}){return t!==`pool`&&n.paths?.length===0&&!n.path?p(`p`,{children:[`There is no pool yet, and `,t,`s run in pools: `,p(`a`,{href:`/submit?kind=pool`,children:`create one`}),`.`]}):p(`label`,{children:[A[t],` `,p(w,{list:`pool-paths`,value:n.path,placeholder:`/path`,isWrong:!!n.problem,take:n=>e({[t===`pool`?`parent`:`pool`]:n})}),p(`datalist`,{id:`pool-paths`,children:(n.paths??[]).map(e=>p(`option`,{value:e},e))})]})}function Se({take:e}){let n=t(null);return p(r,{children:[p(`input`,{ref:n,type:`file`,accept:`.yaml,.yml`,hidden:!0,onChange:async()=>{let t=n.current.files?.[0];t&&e(await t.text()),n.current.value=``}}),p(`button`,{type:`button`,onClick:()=>n.current.click(),children:`Open a file`})]})}function Ce({wanted:e,plan:n,done:r}){let i=t(null);c(()=>{e&&(i.current=e)},[e]);let o=e??i.current,s=o?.message.name||`it`;return p(y,{label:`Create`,weight:`primary`,title:`Create ${s}?`,act:async()=>{let t=await U(e);t.warnings.length?r(t):a(t.href)},disabled:!e,children:[o&&p(`p`,{children:[Y(o.kind,o.message),`, `,o.kind===`pool`?`as ${R(o.pool,o.message.name)}`:`in ${o.pool}`,o.batchSize?`, ${o.batchSize} at a time`:``,`.`]}),n?p(`p`,{children:[`By its plan: `,n,`.`]}):p(`p`,{class:`quiet`,children:`What would become of it has not been planned.`})]})}function we({created:e}){return p(`section`,{role:`status`,children:[p(`p`,{class:`fine`,children:[`Created: `,p(`a`,{href:e.href,children:e.name})]}),p(`ul`,{class:`wrong`,children:e.warnings.map(e=>p(`li`,{class:`warning`,children:[p(`strong`,{children:`Warning`}),`: `,e]},e))})]})}function Te({wanted:e,kind:t}){let n=e??{kind:t,message:{name:`NAME`},pool:`/POOL`,poolId:`POOL-ID`,batchSize:0},{service:r,method:i,request:a}=I(n.message.parent?{...n,message:{...n.message,parent:void 0}}:n);return p(S,{title:`Creating it from a terminal`,command:ae(n),service:r,method:i,request:a})}function Ee(){let e=k.find(e=>e===m(`kind`))??`job`;return p(r,{children:[p(`h1`,{children:`Submit`}),p(`nav`,{class:`tabs`,"aria-label":`What to submit`,children:k.map(t=>p(`a`,{href:De(t),"aria-current":t===e?`page`:void 0,children:t[0].toUpperCase()+t.slice(1)},t))}),p(ve,{kind:e},e)]})}function De(e){let t=new URLSearchParams({kind:e});for(let e of[`pool`,`parent`])m(e)&&t.set(e,m(e));return`/submit?${t}`}export{Ee as default};