import{B as e,C as t,F as n,G as r,H as i,I as a,L as o,N as s,O as c,R as l,S as u,U as d,g as f,i as p,x as m}from"./index-CJp3RIYy.js";import{t as h}from"./service-SzX3HRuT.js";import{r as g}from"./jobs-CI8WJKk9.js";import{t as _}from"./settings-BMj41CVQ.js";import{t as v}from"./asked-B0uDbYYW.js";import{t as y}from"./confirm-o3TVTEmw.js";import{t as b}from"./bar-DLw4atr8.js";import{n as x,t as ee}from"./pool-plan-C0vzi8lY.js";import{t as S}from"./same-as-BvZ51muP.js";import{t as C}from"./why-CeMisjnu.js";import{t as w}from"./typed-DLlWn9Xn.js";var T=`peloton.api.v0.explain.ExplainService`,E=`peloton.api.respool.ResourceManager`,D=[`unavailable`,`deadline_exceeded`,`canceled`,`unknown`,`internal`,`502`,`503`,`504`],te=[`already_exists`,`alreadyExists`],ne={invalidConfig:`Invalid job config: `,invalidResourcePoolConfig:`Invalid resource pool config: `},O=[`changeLog`,`revision`,`respoolID`,`respoolId`],re=`APIs are locked down`,k=[`job`,`service`,`pool`],A={job:`Pool`,service:`Pool`,pool:`Below the pool`};async function j(e,n){return(await t(`/files/${e}`,{method:`POST`,headers:{"content-type":`application/yaml`},body:n})).message}async function M(e,n){let r=e===`service`?await u(h,`GetJob`,{jobId:{value:n}}):await u(g,`Get`,{id:{value:n}}),i=e===`service`?r.jobInfo?.spec:r.jobInfo?.config;if(!i)throw Error(`there is no ${e} ${n}`);let a=Object.fromEntries(Object.entries(i).filter(([e])=>!O.includes(e)));return a.type===`DAEMON`&&delete a.instanceCount,(await t(`/files/${e}`,{method:`POST`,headers:{"content-type":`application/json`},body:JSON.stringify(a)})).text}async function N(e,t){try{return(await u(E,`LookupResourcePoolID`,{path:{value:e}})).id.value}catch(n){let{code:r,message:i}=n;throw new m(r,`unable to find ${t===`pool`?`parent`:`resource pool`} ${e}: ${i}`)}}function P({kind:e,message:t,poolId:n}){if(e===`job`)return{...t,respoolID:{value:n}};if(e===`service`)return{...t,respoolId:{value:n}};if(t.parent)throw Error(`parent should not be supplied in the config`);return{...t,parent:{value:n}}}function F(e){let t=P(e);return e.kind===`pool`?{service:T,method:`PoolPlan`,request:{config:t}}:{service:T,method:`JobPlan`,request:e.kind===`service`?{spec:t}:{config:t}}}function I(e,t=``){let n=P(e),r=t&&{value:t};if(e.kind===`pool`)return{service:E,method:`CreateResourcePool`,request:{config:n}};if(e.kind===`job`)return{service:g,method:`Create`,request:{...r&&{id:r},config:n}};let i=e.batchSize?{createSpec:{batchSize:e.batchSize}}:{};return{service:h,method:`CreateJob`,request:{...r&&{jobId:r},spec:n,...i}}}function ie({kind:e,pool:t}){return e===`pool`?`peloton respool plan pool.yaml${t===`/`?``:` --parent ${L(t)}`}`:e===`service`?`peloton job stateless plan ${L(t)} service.yaml`:`peloton job plan ${L(t)} job.yaml`}function ae({kind:e,pool:t,message:n,batchSize:r}){return e===`pool`?`peloton respool create ${L(R(t,n.name))} pool.yaml`:e===`job`?`peloton job create ${L(t)} job.yaml --watch`:`peloton job stateless create ${L(t)} service.yaml${r?` ${r}`:``} --watch`}function L(e){return/^[\w,./=:-]+$/.test(e)?e:`'${e.replaceAll(`'`,`'\\''`)}'`}function R(e,t){return`${e===`/`?``:e}/${t??``}`}var z=new Map,B=e=>`peloton-submit-try-${e}`;function V(e){let t=K(B(e));return z.get(e)??(t?JSON.parse(t):null)}function H(e,t){t?(z.set(e,t),G(B(e),JSON.stringify(t))):(z.delete(e),q(B(e)))}async function U(e){let{kind:t,message:n,pool:r}=e,i=JSON.stringify([e.pool,e.batchSize,n]),a=V(t),o=a?.what===i,s=o?a.id:W(),c={href:t===`pool`?p(R(r,n.name)):`/${t}s/${s}`,name:n.name||s,warnings:[]};H(t,{id:s,what:i});try{let{service:t,method:n,request:r}=I(e,s);c.warnings=(await u(t,n,r)).warnings??[]}catch(e){let n=e;if(D.includes(n.code)&&!n.message.includes(re))throw new m(n.code,`${n.message}. Whether it was created is not known: create it again, which makes no second one.`);if(o||H(t,null),!(o&&te.includes(n.code)))throw new m(n.code,`${ne[n.code]??``}${n.message}`)}return H(t,null),c}function W(){let e=crypto.getRandomValues(new Uint8Array(16));e[6]=e[6]&15|64,e[8]=e[8]&63|128;let t=[...e].map(e=>e.toString(16).padStart(2,`0`)).join(``);return[t.slice(0,8),t.slice(8,12),t.slice(12,16),t.slice(16,20),t.slice(20)].join(`-`)}function G(e,t){try{return sessionStorage.setItem(e,t),!0}catch{return q(e),!1}}function K(e){try{return sessionStorage.getItem(e)}catch{return null}}function q(e){try{sessionStorage.removeItem(e)}catch{}}var J={job:{"a job":`# The first job: ten instances that say hello and sleep for a few seconds.
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
`}},oe=300,se=3e3,ce=[403,413];function le(t,n,r){let[i,a]=d({of:null,faults:[]}),[o,s]=d(0);return e(()=>{if(!r)return;let e=!1,i,o=t=>{if(e)return;let i=(t.faults??[]).map(r.inside),o=r.bounds().filter(e=>!i.some(t=>t.line===e.line)),s=[...i,...o].sort((e,t)=>e.line-t.line);r.show(s),a({...t,of:n,faults:s})},c=setTimeout(()=>{j(t,n).then(e=>o({message:e}),t=>{if(t.place)return o({faults:[{...t.place,text:t.message}]});o({failure:t.message}),!e&&!ce.includes(t.status)&&(i=setTimeout(()=>s(e=>e+1),se))})},oe);return()=>{e=!0,clearTimeout(c),clearTimeout(i)}},[t,n,r,o]),i}function ue({kind:n,initial:a,changed:s,ready:l}){let u=i(null),[f,p]=d(`loading`);return e(()=>{let e=null,r=!1;return(async()=>{let[{edit:i},c]=await Promise.all([o(()=>import(`./editor-C-vzcZbS.js`),[]),t(`/schemas/${n}.json`)]);r||(e=i(u.current,a,c,`YAML of the ${n}`,`editor-keys`,s),p(`there`),l(e))})().catch(e=>!r&&p({failure:e.message})),()=>{r=!0,e?.close()}},[]),c(r,{children:[f===`loading`&&c(`p`,{class:`quiet`,"aria-busy":`true`,children:`Loading the editor`}),typeof f==`object`&&c(`p`,{class:`stale`,role:`alert`,children:[`The editor could not be loaded, load the page again: `,f.failure]}),c(`div`,{class:`editor`,ref:u}),c(`p`,{class:`quiet`,id:`editor-keys`,children:[c(`kbd`,{children:`Ctrl`}),`+`,c(`kbd`,{children:`Space`}),` completes keys and values. `,c(`kbd`,{children:`Tab`}),` indents; `,c(`kbd`,{children:`Esc`}),` and then `,c(`kbd`,{children:`Tab`}),` leaves the editor.`]})]})}function de({kind:e,read:{message:t,faults:n,failure:r,of:i},text:a,goTo:o}){return c(`div`,{class:`faults`,role:`status`,children:[r&&c(`p`,{class:`stale`,children:[`Not checked: `,r]}),i===a&&t&&!n.length&&c(`p`,{class:`fine`,children:Y(e,t)}),n.length>0&&c(`ul`,{class:`wrong`,children:n.map(e=>c(`li`,{class:`critical`,children:[c(`button`,{type:`button`,class:`plain`,onClick:()=>o(e),children:[`Line `,e.line,`, column `,e.column]}),`: `,e.text]},`${e.line} ${e.column} ${e.text}`))})]})}function Y(e,t){let n=t.name||`without a name`;if(e===`pool`)return`The pool ${n}`;let r=t.instanceCount??0;return`The ${e} ${n}, ${r} ${r===1?`instance`:`instances`}`}function X(t){let[n,r]=d({of:``}),i=async e=>{r({of:t,isAsking:!0});try{let{service:n,method:i,request:a}=F(e),o=await u(n,i,a);r({of:t,plan:o,wanted:e})}catch(e){r({of:t,failure:e.message})}};return e(()=>r(e=>e.of===t?e:{of:``}),[t]),{...n.of===t?n:{},ask:i}}function Z(e,t){if(e===`pool`)return`${t.poolPath} ${`isNew`in t&&t.isNew?`would be a new pool`:`exists, creating it will be refused`}`;let{admittedInstances:n=0,waitingInstances:r=0,heldBackInstances:i=0,room:a,daemon:o}=t;if(o?.length)return`a daemon: ${o.map(Q).join(`; `)}`;let s=f(n+r+i,`instance`),c=[r&&`${f(r)} would wait`,i&&`${f(i)} would be held back by the maximum of running instances`].filter(Boolean);return a?.hostlessInstances&&c.unshift(`${f(a.hostlessInstances)} of these would wait for a host`),[`${f(n)} of ${s} would be admitted now in ${t.poolPath}`,...c].join(`, `)}function Q({cluster:e,notKnown:t,hosts:n=0,matchingHosts:r=0,hostsWithRoom:i=0}){let a=e?`cluster ${e}: `:``;return t?`${a}not known: ${t}`:`${a}${f(r)} of ${f(n,`host`)} match, ${f(i)} with room for it now`}function fe({wanted:e,plan:t}){let{service:n,method:r,request:i}=F(e);return c(`section`,{"aria-label":`Plan`,children:[c(`h2`,{children:`Plan`}),e.kind===`pool`?c(ge,{plan:t}):c(me,{kind:e.kind,plan:t}),c(S,{title:`This plan from a terminal`,command:ie(e),service:n,method:r,request:i})]})}var pe=e=>e.split(`
`).map(e=>e.charAt(0).toUpperCase()+e.slice(1)).join(`
`);function me({kind:e,plan:t}){let{admittedInstances:n=0,waitingInstances:i=0,heldBackInstances:a=0,evictions:o=[],room:s}=t;return t.daemon?.length?c(he,{plan:t,clusters:t.daemon}):c(r,{children:[c(b,{label:`Instances`,parts:[{name:`admitted`,value:n,tone:`allocation`},{name:`would wait`,value:i,tone:`demand`},{name:`held back`,value:a,tone:`slack`}],whole:n+i+a,text:Z(e,t)}),s?.text&&c(`p`,{class:s.notKnown?`lines stale`:`lines`,children:pe(s.text)}),t.waiting?.length||t.reasons?.length?c(C,{why:t}):null,c(ee,{evictions:o}),!o.length&&c(`p`,{children:`Nothing would be evicted for it.`}),e===`service`&&c(`p`,{class:`quiet`,children:`It is of all instances at once: batches, which come one after the other, are not part of a plan.`})]})}function he({plan:e,clusters:t}){return c(r,{children:[t.filter(e=>!e.notKnown).map(e=>{let t=[{name:`run at once`,value:e.hostsWithRoom??0,tone:`allocation`},{name:`after evictions`,value:e.evictingHosts??0,tone:`slack`},{name:`later`,value:(e.waitingHosts??0)+(e.uncheckedHosts??0)+(e.hostsInMaintenance??0),tone:`demand`}];return c(b,{label:e.cluster||`Hosts`,parts:t,whole:e.hosts??0,text:Q(e)},e.cluster)}),c(`p`,{class:t.some(e=>e.notKnown)?`lines stale`:`lines`,children:e.text})]})}function ge({plan:e}){return c(r,{children:[e.isNew?c(`p`,{children:[e.poolPath,` would be a new pool.`]}):c(`p`,{class:`stale`,children:[e.poolPath,` exists: this is what changing it to this file would do. Creating it will be refused; `,c(`code`,{children:`peloton respool update`}),` changes it.`]}),c(x,{plan:e}),e.text&&c(`details`,{children:[c(`summary`,{children:`In words`}),c(`p`,{class:`lines`,children:e.text})]})]})}var $=e=>`peloton-submit-${e}`;function _e(e){return K($(e))??Object.values(J[e])[0]}function ve({kind:e}){let[t]=d(()=>_e(e)),[n,i]=d(t),[a,o]=d(!0),[s,l]=d(null),[u,f]=d(null),p=le(e,n,s),m=be(e),[h,g]=d(0),v=p.of===n?p.message:void 0,y=v&&m.id?{kind:e,message:v,pool:m.path,poolId:m.id,batchSize:h}:null,b=X(JSON.stringify([n,m.path,h])),x=ye(e,s);return c(r,{children:[c(`div`,{class:`filters`,children:[c(xe,{kind:e,pool:m}),e===`service`&&c(`label`,{children:[`Add at a time`,` `,c(`input`,{type:`number`,min:0,max:1e5,value:h||``,placeholder:`all`,onInput:e=>g(Math.max(0,Math.floor(Number(e.currentTarget.value))))})]}),c(`label`,{children:[`Example`,` `,c(`select`,{value:``,onChange:t=>{s?.replace(J[e][t.currentTarget.value]),t.currentTarget.value=``},children:[c(`option`,{value:``,children:`begin with …`}),Object.keys(J[e]).map(e=>c(`option`,{value:e,children:e},e))]})]}),c(Se,{take:e=>s?.replace(e)})]}),x&&c(`p`,{class:`stale`,role:`alert`,children:x}),m.away?c(`p`,{class:`stale`,role:`alert`,children:[`It can be written now, and neither planned nor created: `,m.away]}):m.problem&&c(`p`,{class:`stale`,role:`alert`,children:m.problem}),c(ue,{kind:e,initial:t,changed:t=>{i(t),f(null),o(G($(e),t))},ready:l}),!a&&c(`p`,{class:`stale`,children:`The text is too large to be kept when the page is loaded again.`}),c(de,{kind:e,read:p,text:n,goTo:e=>s?.goTo(e)}),m.paths?.length&&!m.path?c(`p`,{class:`quiet`,children:`Choose a pool to plan it or to create it.`}):null,c(`p`,{class:`buttons`,children:[c(`button`,{type:`button`,disabled:!y||b.isAsking,onClick:()=>void b.ask(y),children:`Plan`}),c(Ce,{wanted:y,done:f,plan:b.plan&&Z(e,b.plan)})]}),_.value.viewer&&!_.value.mayChange&&c(`p`,{class:`quiet`,children:`You may look and plan, and not create.`}),c(`div`,{"aria-live":`polite`,children:[u&&c(we,{created:u}),b.isAsking&&c(`p`,{class:`quiet`,"aria-busy":`true`,children:`Planning`}),b.failure&&c(`p`,{class:`stale`,role:`alert`,children:[`It cannot be planned: `,b.failure]}),b.plan&&b.wanted&&c(fe,{wanted:b.wanted,plan:b.plan})]}),c(Te,{wanted:y,kind:e})]})}function ye(t,r){let i=t===`pool`?``:n(`from`),[o,s]=d(``);return e(()=>{if(!i||!r)return;let e=!1;return M(t,i).then(t=>{e||(r.replace(t),a({from:``}))},n=>!e&&s(`The ${t} ${i} could not be read: ${n.message}`)),()=>{e=!0}},[i,r]),o}function be(e){let{value:t,error:r}=l(`pools`),i=t?.filter(([t,,n])=>e===`pool`||n&&t!==`/`).map(([e])=>e),a=e===`pool`?`/`:i?.length===1?i[0]:``,o=n(e===`pool`?`parent`:`pool`)||a,{value:s,error:c}=v(o,async()=>o?{path:o,id:await N(o,e)}:null);return{path:o,paths:i,id:s?.path===o?s.id:void 0,away:r?.message,problem:o?c?.message:void 0}}function xe({kind:e,pool:t}){return e!==`pool`&&t.paths?.length===0&&!t.path?c(`p`,{children:[`There is no pool yet, and `,e,`s run in pools: `,c(`a`,{href:`/submit?kind=pool`,children:`create one`}),`.`]}):c(`label`,{children:[A[e],` `,c(w,{list:`pool-paths`,value:t.path,placeholder:`/path`,isWrong:!!t.problem,take:t=>a({[e===`pool`?`parent`:`pool`]:t})}),c(`datalist`,{id:`pool-paths`,children:(t.paths??[]).map(e=>c(`option`,{value:e},e))})]})}function Se({take:e}){let t=i(null);return c(r,{children:[c(`input`,{ref:t,type:`file`,accept:`.yaml,.yml`,hidden:!0,onChange:async()=>{let n=t.current.files?.[0];n&&e(await n.text()),t.current.value=``}}),c(`button`,{type:`button`,onClick:()=>t.current.click(),children:`Open a file`})]})}function Ce({wanted:t,plan:n,done:r}){let a=i(null);e(()=>{t&&(a.current=t)},[t]);let o=t??a.current,l=o?.message.name||`it`;return c(y,{label:`Create`,title:`Create ${l}?`,act:async()=>{let e=await U(t);e.warnings.length?r(e):s(e.href)},disabled:!t,children:[o&&c(`p`,{children:[Y(o.kind,o.message),`, `,o.kind===`pool`?`as ${R(o.pool,o.message.name)}`:`in ${o.pool}`,o.batchSize?`, ${o.batchSize} at a time`:``,`.`]}),n?c(`p`,{children:[`By its plan: `,n,`.`]}):c(`p`,{class:`quiet`,children:`What would become of it has not been planned.`})]})}function we({created:e}){return c(`section`,{role:`status`,children:[c(`p`,{class:`fine`,children:[`Created: `,c(`a`,{href:e.href,children:e.name})]}),c(`ul`,{class:`wrong`,children:e.warnings.map(e=>c(`li`,{class:`warning`,children:[c(`strong`,{children:`Warning`}),`: `,e]},e))})]})}function Te({wanted:e,kind:t}){let n=e??{kind:t,message:{name:`NAME`},pool:`/POOL`,poolId:`POOL-ID`,batchSize:0},{service:r,method:i,request:a}=I(n.message.parent?{...n,message:{...n.message,parent:void 0}}:n);return c(S,{title:`Creating it from a terminal`,command:ae(n),service:r,method:i,request:a})}function Ee(){let e=k.find(e=>e===n(`kind`))??`job`;return c(r,{children:[c(`h1`,{children:`Submit`}),c(`nav`,{class:`tabs`,"aria-label":`What to submit`,children:k.map(t=>c(`a`,{href:De(t),"aria-current":t===e?`page`:void 0,children:t[0].toUpperCase()+t.slice(1)},t))}),c(ve,{kind:e},e)]})}function De(e){let t=new URLSearchParams({kind:e});for(let e of[`pool`,`parent`])n(e)&&t.set(e,n(e));return`/submit?${t}`}export{Ee as default};