import{G as e,H as t,I as n,R as r,T as i,V as a,W as o,d as s,f as c,i as l,j as u,p as d,q as f,y as p,z as m}from"./index-CE-DVDTi.js";import{t as h}from"./service-QPuZ6vdL.js";import{r as g}from"./jobs-CzJfU8rC.js";import{t as _}from"./settings-Bi1ykc6k.js";import{t as v}from"./asked-BHZvI4OI.js";import{t as y}from"./confirm-CGTtztfX.js";import{t as b}from"./bar-CSqJIQA3.js";import{n as x,t as ee}from"./pool-plan-DPbm4iBI.js";import{t as S}from"./same-as-B7UtlS_Y.js";import{t as C}from"./why-DaHGnUBu.js";import{t as w}from"./typed-BzsBJa-B.js";var T=`peloton.api.v0.explain.ExplainService`,E=`peloton.api.respool.ResourceManager`,D=[`unavailable`,`deadline_exceeded`,`canceled`,`unknown`,`internal`,`502`,`503`,`504`],te=[`already_exists`,`alreadyExists`],ne={invalidConfig:`Invalid job config: `,invalidResourcePoolConfig:`Invalid resource pool config: `},O=[`changeLog`,`revision`,`respoolID`,`respoolId`],re=`APIs are locked down`,k=[`job`,`service`,`pool`],A={job:`Pool`,service:`Pool`,pool:`Below the pool`};async function j(e,t){return(await d(`/files/${e}`,{method:`POST`,headers:{"content-type":`application/yaml`},body:t})).message}async function M(e,t){let n=e===`service`?await c(h,`GetJob`,{jobId:{value:t}}):await c(g,`Get`,{id:{value:t}}),r=e===`service`?n.jobInfo?.spec:n.jobInfo?.config;if(!r)throw Error(`there is no ${e} ${t}`);let i=Object.fromEntries(Object.entries(r).filter(([e])=>!O.includes(e)));return i.type===`DAEMON`&&delete i.instanceCount,(await d(`/files/${e}`,{method:`POST`,headers:{"content-type":`application/json`},body:JSON.stringify(i)})).text}async function N(e,t){try{return(await c(E,`LookupResourcePoolID`,{path:{value:e}})).id.value}catch(n){let{code:r,message:i}=n;throw new s(r,`unable to find ${t===`pool`?`parent`:`resource pool`} ${e}: ${i}`)}}function P({kind:e,message:t,poolId:n}){if(e===`job`)return{...t,respoolID:{value:n}};if(e===`service`)return{...t,respoolId:{value:n}};if(t.parent)throw Error(`parent should not be supplied in the config`);return{...t,parent:{value:n}}}function F(e){let t=P(e);return e.kind===`pool`?{service:T,method:`PoolPlan`,request:{config:t}}:{service:T,method:`JobPlan`,request:e.kind===`service`?{spec:t}:{config:t}}}function I(e,t=``){let n=P(e),r=t&&{value:t};if(e.kind===`pool`)return{service:E,method:`CreateResourcePool`,request:{config:n}};if(e.kind===`job`)return{service:g,method:`Create`,request:{...r&&{id:r},config:n}};let i=e.batchSize?{createSpec:{batchSize:e.batchSize}}:{};return{service:h,method:`CreateJob`,request:{...r&&{jobId:r},spec:n,...i}}}function ie({kind:e,pool:t}){return e===`pool`?`peloton respool plan pool.yaml${t===`/`?``:` --parent ${L(t)}`}`:e===`service`?`peloton job stateless plan ${L(t)} service.yaml`:`peloton job plan ${L(t)} job.yaml`}function ae({kind:e,pool:t,message:n,batchSize:r}){return e===`pool`?`peloton respool create ${L(R(t,n.name))} pool.yaml`:e===`job`?`peloton job create ${L(t)} job.yaml --watch`:`peloton job stateless create ${L(t)} service.yaml${r?` ${r}`:``} --watch`}function L(e){return/^[\w,./=:-]+$/.test(e)?e:`'${e.replaceAll(`'`,`'\\''`)}'`}function R(e,t){return`${e===`/`?``:e}/${t??``}`}var z=new Map,B=e=>`peloton-submit-try-${e}`;function V(e){let t=K(B(e));return z.get(e)??(t?JSON.parse(t):null)}function H(e,t){t?(z.set(e,t),G(B(e),JSON.stringify(t))):(z.delete(e),q(B(e)))}async function U(e){let{kind:t,message:n,pool:r}=e,i=JSON.stringify([e.pool,e.batchSize,n]),a=V(t),o=a?.what===i,u=o?a.id:W(),d={href:t===`pool`?l(R(r,n.name)):`/${t}s/${u}`,name:n.name||u,warnings:[]};H(t,{id:u,what:i});try{let{service:t,method:n,request:r}=I(e,u);d.warnings=(await c(t,n,r)).warnings??[]}catch(e){let n=e;if(D.includes(n.code)&&!n.message.includes(re))throw new s(n.code,`${n.message}. Whether it was created is not known: create it again, which makes no second one.`);if(o||H(t,null),!(o&&te.includes(n.code)))throw new s(n.code,`${ne[n.code]??``}${n.message}`)}return H(t,null),d}function W(){let e=crypto.getRandomValues(new Uint8Array(16));e[6]=e[6]&15|64,e[8]=e[8]&63|128;let t=[...e].map(e=>e.toString(16).padStart(2,`0`)).join(``);return[t.slice(0,8),t.slice(8,12),t.slice(12,16),t.slice(16,20),t.slice(20)].join(`-`)}function G(e,t){try{return sessionStorage.setItem(e,t),!0}catch{return q(e),!1}}function K(e){try{return sessionStorage.getItem(e)}catch{return null}}function q(e){try{sessionStorage.removeItem(e)}catch{}}var J={job:{"a job":`# The first job: ten instances that say hello and sleep for a few seconds.
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
`}},oe=300,se=3e3,ce=[403,413];function le(n,r,i){let[a,o]=e({of:null,faults:[]}),[s,c]=e(0);return t(()=>{if(!i)return;let e=!1,t,a=t=>{if(e)return;let n=(t.faults??[]).map(i.inside),a=i.bounds().filter(e=>!n.some(t=>t.line===e.line)),s=[...n,...a].sort((e,t)=>e.line-t.line);i.show(s),o({...t,of:r,faults:s})},s=setTimeout(()=>{j(n,r).then(e=>a({message:e}),n=>{if(n.place)return a({faults:[{...n.place,text:n.message}]});a({failure:n.message}),!e&&!ce.includes(n.status)&&(t=setTimeout(()=>c(e=>e+1),se))})},oe);return()=>{e=!0,clearTimeout(s),clearTimeout(t)}},[n,r,i,s]),a}function ue({kind:n,initial:r,changed:i,ready:s}){let c=o(null),[l,u]=e(`loading`);return t(()=>{let e=null,t=!1;return(async()=>{let[{edit:o},l]=await Promise.all([a(()=>import(`./editor-Bg_NcfKq.js`),[]),d(`/schemas/${n}.json`)]);t||(e=o(c.current,r,l,`YAML of the ${n}`,`editor-keys`,i),u(`there`),s(e))})().catch(e=>!t&&u({failure:e.message})),()=>{t=!0,e?.close()}},[]),p(f,{children:[l===`loading`&&p(`p`,{class:`quiet`,"aria-busy":`true`,children:`Loading the editor`}),typeof l==`object`&&p(`p`,{class:`stale`,role:`alert`,children:[`The editor could not be loaded, load the page again: `,l.failure]}),p(`div`,{class:`editor`,ref:c}),p(`p`,{class:`quiet`,id:`editor-keys`,children:[p(`kbd`,{children:`Ctrl`}),`+`,p(`kbd`,{children:`Space`}),` completes keys and values. `,p(`kbd`,{children:`Tab`}),` indents; `,p(`kbd`,{children:`Esc`}),` and then `,p(`kbd`,{children:`Tab`}),` leaves the editor.`]})]})}function de({kind:e,read:{message:t,faults:n,failure:r,of:i},text:a,goTo:o}){return p(`div`,{class:`faults`,role:`status`,children:[r&&p(`p`,{class:`stale`,children:[`Not checked: `,r]}),i===a&&t&&!n.length&&p(`p`,{class:`fine`,children:Y(e,t)}),n.length>0&&p(`ul`,{class:`wrong`,children:n.map(e=>p(`li`,{class:`critical`,children:[p(`button`,{type:`button`,class:`plain`,onClick:()=>o(e),children:[`Line `,e.line,`, column `,e.column]}),`: `,e.text]},`${e.line} ${e.column} ${e.text}`))})]})}function Y(e,t){let n=t.name||`without a name`;if(e===`pool`)return`The pool ${n}`;let r=t.instanceCount??0;return`The ${e} ${n}, ${r} ${r===1?`instance`:`instances`}`}function X(n){let[r,i]=e({of:``}),a=async e=>{i({of:n,isAsking:!0});try{let{service:t,method:r,request:a}=F(e),o=await c(t,r,a);i({of:n,plan:o,wanted:e})}catch(e){i({of:n,failure:e.message})}};return t(()=>i(e=>e.of===n?e:{of:``}),[n]),{...r.of===n?r:{},ask:a}}function Z(e,t){if(e===`pool`)return`${t.poolPath} ${`isNew`in t&&t.isNew?`would be a new pool`:`exists, creating it will be refused`}`;let{admittedInstances:n=0,waitingInstances:r=0,heldBackInstances:a=0,room:o,daemon:s}=t;if(s?.length)return`a daemon: ${s.map(Q).join(`; `)}`;let c=i(n+r+a,`instance`),l=[r&&`${i(r)} would wait`,a&&`${i(a)} would be held back by the maximum of running instances`].filter(Boolean);return o?.hostlessInstances&&l.unshift(`${i(o.hostlessInstances)} of these would wait for a host`),[`${i(n)} of ${c} would be admitted now in ${t.poolPath}`,...l].join(`, `)}function Q({cluster:e,notKnown:t,hosts:n=0,matchingHosts:r=0,hostsWithRoom:a=0}){let o=e?`cluster ${e}: `:``;return t?`${o}not known: ${t}`:`${o}${i(r)} of ${i(n,`host`)} match, ${i(a)} with room for it now`}function fe({wanted:e,plan:t}){let{service:n,method:r,request:i}=F(e);return p(`section`,{"aria-label":`Plan`,children:[p(`h2`,{children:`Plan`}),e.kind===`pool`?p(ge,{plan:t}):p(me,{kind:e.kind,plan:t}),p(S,{title:`This plan from a terminal`,command:ie(e),service:n,method:r,request:i})]})}var pe=e=>e.split(`
`).map(e=>e.charAt(0).toUpperCase()+e.slice(1)).join(`
`);function me({kind:e,plan:t}){let{admittedInstances:n=0,waitingInstances:r=0,heldBackInstances:i=0,evictions:a=[],room:o}=t;return t.daemon?.length?p(he,{plan:t,clusters:t.daemon}):p(f,{children:[p(b,{label:`Instances`,parts:[{name:`admitted`,value:n,tone:`allocation`},{name:`would wait`,value:r,tone:`demand`},{name:`held back`,value:i,tone:`slack`}],whole:n+r+i,text:Z(e,t)}),o?.text&&p(`p`,{class:o.notKnown?`lines stale`:`lines`,children:pe(o.text)}),t.waiting?.length||t.reasons?.length?p(C,{why:t}):null,p(ee,{evictions:a,names:t.jobNames}),!a.length&&p(`p`,{children:`Nothing would be evicted for it.`}),e===`service`&&p(`p`,{class:`quiet`,children:`It is of all instances at once: batches, which come one after the other, are not part of a plan.`})]})}function he({plan:e,clusters:t}){return p(f,{children:[t.filter(e=>!e.notKnown).map(e=>{let t=[{name:`run at once`,value:e.hostsWithRoom??0,tone:`allocation`},{name:`after evictions`,value:e.evictingHosts??0,tone:`slack`},{name:`later`,value:(e.waitingHosts??0)+(e.uncheckedHosts??0)+(e.hostsInMaintenance??0),tone:`demand`}];return p(b,{label:e.cluster||`Hosts`,parts:t,whole:e.hosts??0,text:Q(e)},e.cluster)}),p(`p`,{class:t.some(e=>e.notKnown)?`lines stale`:`lines`,children:e.text})]})}function ge({plan:e}){return p(f,{children:[e.isNew?p(`p`,{children:[e.poolPath,` would be a new pool.`]}):p(`p`,{class:`stale`,children:[e.poolPath,` exists: this is what changing it to this file would do. Creating it will be refused; `,p(`code`,{children:`peloton respool update`}),` changes it.`]}),p(x,{plan:e}),e.text&&p(`details`,{children:[p(`summary`,{children:`In words`}),p(`p`,{class:`lines`,children:e.text})]})]})}var $=e=>`peloton-submit-${e}`;function _e(e){return K($(e))??Object.values(J[e])[0]}function ve({kind:t}){let[n]=e(()=>_e(t)),[r,i]=e(n),[a,o]=e(!0),[s,c]=e(null),[l,u]=e(null),d=le(t,r,s),m=be(t),[h,g]=e(0),v=d.of===r?d.message:void 0,y=v&&m.id?{kind:t,message:v,pool:m.path,poolId:m.id,batchSize:h}:null,b=X(JSON.stringify([r,m.path,h])),x=ye(t,s);return p(f,{children:[p(`div`,{class:`filters`,children:[p(xe,{kind:t,pool:m}),t===`service`&&p(`label`,{children:[`Add at a time`,` `,p(`input`,{type:`number`,min:0,max:1e5,value:h||``,placeholder:`all`,onInput:e=>g(Math.max(0,Math.floor(Number(e.currentTarget.value))))})]}),p(`label`,{children:[`Example`,` `,p(`select`,{value:``,onChange:e=>{s?.replace(J[t][e.currentTarget.value]),e.currentTarget.value=``},children:[p(`option`,{value:``,children:`begin with …`}),Object.keys(J[t]).map(e=>p(`option`,{value:e,children:e},e))]})]}),p(Se,{take:e=>s?.replace(e)})]}),x&&p(`p`,{class:`stale`,role:`alert`,children:x}),m.away?p(`p`,{class:`stale`,role:`alert`,children:[`It can be written now, and neither planned nor created: `,m.away]}):m.problem&&p(`p`,{class:`stale`,role:`alert`,children:m.problem}),p(ue,{kind:t,initial:n,changed:e=>{i(e),u(null),o(G($(t),e))},ready:c}),!a&&p(`p`,{class:`stale`,children:`The text is too large to be kept when the page is loaded again.`}),p(de,{kind:t,read:d,text:r,goTo:e=>s?.goTo(e)}),m.paths?.length&&!m.path?p(`p`,{class:`quiet`,children:`Choose a pool to plan it or to create it.`}):null,p(`p`,{class:`buttons`,children:[p(`button`,{type:`button`,disabled:!y||b.isAsking,onClick:()=>void b.ask(y),children:`Plan`}),p(Ce,{wanted:y,done:u,plan:b.plan&&Z(t,b.plan)})]}),_.value.viewer&&!_.value.mayChange&&p(`p`,{class:`quiet`,children:`You may look and plan, and not create.`}),p(`div`,{"aria-live":`polite`,children:[l&&p(we,{created:l}),b.isAsking&&p(`p`,{class:`quiet`,"aria-busy":`true`,children:`Planning`}),b.failure&&p(`p`,{class:`stale`,role:`alert`,children:[`It cannot be planned: `,b.failure]}),b.plan&&b.wanted&&p(fe,{wanted:b.wanted,plan:b.plan})]}),p(Te,{wanted:y,kind:t})]})}function ye(n,i){let a=n===`pool`?``:r(`from`),[o,s]=e(``);return t(()=>{if(!a||!i)return;let e=!1;return M(n,a).then(t=>{e||(i.replace(t),m({from:``}))},t=>!e&&s(`The ${n} ${a} could not be read: ${t.message}`)),()=>{e=!0}},[a,i]),o}function be(e){let{value:t,error:n}=u(`pools`),i=t?.filter(([t,,n])=>e===`pool`||n&&t!==`/`).map(([e])=>e),a=e===`pool`?`/`:i?.length===1?i[0]:``,o=r(e===`pool`?`parent`:`pool`)||a,{value:s,error:c}=v(o,async()=>o?{path:o,id:await N(o,e)}:null);return{path:o,paths:i,id:s?.path===o?s.id:void 0,away:n?.message,problem:o?c?.message:void 0}}function xe({kind:e,pool:t}){return e!==`pool`&&t.paths?.length===0&&!t.path?p(`p`,{children:[`There is no pool yet, and `,e,`s run in pools: `,p(`a`,{href:`/submit?kind=pool`,children:`create one`}),`.`]}):p(`label`,{children:[A[e],` `,p(w,{list:`pool-paths`,value:t.path,placeholder:`/path`,isWrong:!!t.problem,take:t=>m({[e===`pool`?`parent`:`pool`]:t})}),p(`datalist`,{id:`pool-paths`,children:(t.paths??[]).map(e=>p(`option`,{value:e},e))})]})}function Se({take:e}){let t=o(null);return p(f,{children:[p(`input`,{ref:t,type:`file`,accept:`.yaml,.yml`,hidden:!0,onChange:async()=>{let n=t.current.files?.[0];n&&e(await n.text()),t.current.value=``}}),p(`button`,{type:`button`,onClick:()=>t.current.click(),children:`Open a file`})]})}function Ce({wanted:e,plan:r,done:i}){let a=o(null);t(()=>{e&&(a.current=e)},[e]);let s=e??a.current,c=s?.message.name||`it`;return p(y,{label:`Create`,weight:`primary`,title:`Create ${c}?`,act:async()=>{let t=await U(e);t.warnings.length?i(t):n(t.href)},disabled:!e,children:[s&&p(`p`,{children:[Y(s.kind,s.message),`, `,s.kind===`pool`?`as ${R(s.pool,s.message.name)}`:`in ${s.pool}`,s.batchSize?`, ${s.batchSize} at a time`:``,`.`]}),r?p(`p`,{children:[`By its plan: `,r,`.`]}):p(`p`,{class:`quiet`,children:`What would become of it has not been planned.`})]})}function we({created:e}){return p(`section`,{role:`status`,children:[p(`p`,{class:`fine`,children:[`Created: `,p(`a`,{href:e.href,children:e.name})]}),p(`ul`,{class:`wrong`,children:e.warnings.map(e=>p(`li`,{class:`warning`,children:[p(`strong`,{children:`Warning`}),`: `,e]},e))})]})}function Te({wanted:e,kind:t}){let n=e??{kind:t,message:{name:`NAME`},pool:`/POOL`,poolId:`POOL-ID`,batchSize:0},{service:r,method:i,request:a}=I(n.message.parent?{...n,message:{...n.message,parent:void 0}}:n);return p(S,{title:`Creating it from a terminal`,command:ae(n),service:r,method:i,request:a})}function Ee(){let e=k.find(e=>e===r(`kind`))??`job`;return p(f,{children:[p(`h1`,{children:`Submit`}),p(`nav`,{class:`tabs`,"aria-label":`What to submit`,children:k.map(t=>p(`a`,{href:De(t),"aria-current":t===e?`page`:void 0,children:t[0].toUpperCase()+t.slice(1)},t))}),p(ve,{kind:e},e)]})}function De(e){let t=new URLSearchParams({kind:e});for(let e of[`pool`,`parent`])r(e)&&t.set(e,r(e));return`/submit?${t}`}export{Ee as default};