import{_ as e,b as t,d as n,f as r,g as i,m as a,n as o,o as s,p as c,r as l,t as u,u as d,v as f}from"./index-BeIwGcXi.js";import{t as p}from"./service-h3lpf3Lf.js";import{r as m}from"./jobs-CGk6l5nw.js";import{i as h}from"./pools-DhtWJBtz.js";import{n as g,t as _}from"./confirm-H3eCKQZD.js";import{t as v}from"./asked-C_3PkpBM.js";import{s as y,t as b}from"./same-as-DymS0HRx.js";import{t as x}from"./bar-DHduJtgr.js";import{n as S,t as C}from"./pool-plan-C48Two6R.js";import{t as w}from"./why-D92G9XnB.js";var T=`peloton.api.v0.explain.ExplainService`,E=`peloton.api.respool.ResourceManager`,D=[`unavailable`,`deadline_exceeded`,`canceled`,`unknown`,`internal`,`502`,`503`,`504`],ee=`APIs are locked down`,O=[`job`,`service`,`pool`],k={job:`Pool`,service:`Pool`,pool:`Below the pool`};async function A(e,t){return(await l(`/files/${e}`,{method:`POST`,headers:{"content-type":`application/yaml`},body:t})).message}async function j(e,t){let n=await o(E,`LookupResourcePoolID`,{path:{value:e}});if(n.id?.value)return n.id.value;let r=n.error?.invalidPath?.message||n.error?.notFound?.message||`no such pool`;throw Error(`unable to find ${t===`pool`?`parent`:`resource pool`} ${e}: ${r}`)}function M({kind:e,message:t,poolId:n}){if(e===`job`)return{...t,respoolID:{value:n}};if(e===`service`)return{...t,respoolId:{value:n}};if(t.parent)throw Error(`parent should not be supplied in the config`);return{...t,parent:{value:n}}}function N(e){let t=M(e);return e.kind===`pool`?{service:T,method:`PoolPlan`,request:{config:t}}:{service:T,method:`JobPlan`,request:e.kind===`service`?{spec:t}:{config:t}}}function P(e,t=``){let n=M(e),r=t&&{value:t};if(e.kind===`pool`)return{service:E,method:`CreateResourcePool`,request:{config:n}};if(e.kind===`job`)return{service:m,method:`Create`,request:{...r&&{id:r},config:n}};let i=e.batchSize?{createSpec:{batchSize:e.batchSize}}:{};return{service:p,method:`CreateJob`,request:{...r&&{jobId:r},spec:n,...i}}}function te({kind:e,pool:t}){return e===`pool`?`peloton respool plan pool.yaml${t===`/`?``:` --parent ${F(t)}`}`:e===`service`?`peloton job stateless plan ${F(t)} service.yaml`:`peloton job plan ${F(t)} job.yaml`}function ne({kind:e,pool:t,message:n,batchSize:r}){return e===`pool`?`peloton respool create ${F(I(t,n.name))} pool.yaml`:e===`job`?`peloton job create ${F(t)} job.yaml --watch`:`peloton job stateless create ${F(t)} service.yaml${r?` ${r}`:``} --watch`}function F(e){return/^[\w,./=:-]+$/.test(e)?e:`'${e.replaceAll(`'`,`'\\''`)}'`}function I(e,t){return`${e===`/`?``:e}/${t??``}`}var L=new Map,R=e=>`peloton-submit-try-${e}`;function z(e){let t=G(R(e));return L.get(e)??(t?JSON.parse(t):null)}function B(e,t){t?(L.set(e,t),W(R(e),JSON.stringify(t))):(L.delete(e),K(R(e)))}async function V(e){let{kind:t,message:n,pool:r}=e,i=JSON.stringify([e.pool,e.batchSize,n]),a=z(t),s=a?.what===i,c=s?a.id:U(),l={href:t===`pool`?h(I(r,n.name)):`/${t}s/${c}`,name:n.name||c,warnings:[]};B(t,{id:c,what:i});try{let{service:t,method:n,request:r}=P(e,c),i=await o(t,n,r),[a,s]=Object.entries(i.error??{})[0]??[];if(a)throw new u(a===`alreadyExists`?`already_exists`:`invalid_argument`,`${H(a)}${s?.message??``}`);l.warnings=i.warnings??[]}catch(e){let n=e;if(D.includes(n.code)&&!n.message.includes(ee))throw new u(n.code,`${n.message}. Whether it was created is not known: create it again, which makes no second one.`);if(s||B(t,null),!(s&&n.code===`already_exists`))throw e}return B(t,null),l}function H(e){return{invalidConfig:`Invalid job config: `,invalidResourcePoolConfig:`Invalid resource pool config: `}[e]??``}function U(){let e=crypto.getRandomValues(new Uint8Array(16));e[6]=e[6]&15|64,e[8]=e[8]&63|128;let t=[...e].map(e=>e.toString(16).padStart(2,`0`)).join(``);return[t.slice(0,8),t.slice(8,12),t.slice(12,16),t.slice(16,20),t.slice(20)].join(`-`)}function W(e,t){try{return sessionStorage.setItem(e,t),!0}catch{return K(e),!1}}function G(e){try{return sessionStorage.getItem(e)}catch{return null}}function K(e){try{sessionStorage.removeItem(e)}catch{}}var q={job:{"a job":`# The first job: ten instances that say hello and sleep for a few seconds.
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
`}},J=300,Y=3e3;function X(e,t,n){let[r,a]=f({of:null,faults:[]}),[o,s]=f(0);return i(()=>{if(!n)return;let r=!1,i,o=e=>{if(r)return;let i=[...e.faults??[],...n.bounds().filter(t=>!e.faults?.some(e=>e.line===t.line))];n.show(i),a({...e,of:t,faults:i})},c=setTimeout(()=>{A(e,t).then(e=>o({message:e}),e=>{if(e.place)return o({faults:[{...e.place,text:e.message}]});o({failure:e.message}),r||(i=setTimeout(()=>s(e=>e+1),Y))})},J);return()=>{r=!0,clearTimeout(c),clearTimeout(i)}},[e,t,n,o]),r}function re({kind:n,initial:r,changed:a,ready:o}){let u=e(null),[d,p]=f(`loading`);return i(()=>{let e=null,t=!1;return(async()=>{let[{edit:i},s]=await Promise.all([c(()=>import(`./editor-eIdnDDu7.js`),[]),l(`/schemas/${n}.json`)]);t||(e=i(u.current,r,s,`YAML of the ${n}`,`editor-keys`,a),p(`there`),o(e))})().catch(e=>!t&&p({failure:e.message})),()=>{t=!0,e?.close()}},[]),s(t,{children:[d===`loading`&&s(`p`,{class:`quiet`,"aria-busy":`true`,children:`Loading the editor`}),typeof d==`object`&&s(`p`,{class:`stale`,role:`alert`,children:[`The editor could not be loaded, load the page again: `,d.failure]}),s(`div`,{class:`editor`,ref:u}),s(`p`,{class:`quiet`,id:`editor-keys`,children:[s(`kbd`,{children:`Ctrl`}),`+`,s(`kbd`,{children:`Space`}),` completes keys and values. `,s(`kbd`,{children:`Tab`}),` indents; `,s(`kbd`,{children:`Esc`}),` and then `,s(`kbd`,{children:`Tab`}),` leaves the editor.`]})]})}function ie({kind:e,read:{message:t,faults:n,failure:r,of:i},text:a,goTo:o}){return s(`div`,{class:`faults`,role:`status`,children:[r&&s(`p`,{class:`stale`,children:[`Not checked: `,r]}),i===a&&t&&!n.length&&s(`p`,{class:`fine`,children:Z(e,t)}),n.length>0&&s(`ul`,{class:`wrong`,children:n.map(e=>s(`li`,{class:`critical`,children:[s(`button`,{type:`button`,class:`plain`,onClick:()=>o(e),children:[`Line `,e.line,`, column `,e.column]}),`: `,e.text]},`${e.line} ${e.column} ${e.text}`))})]})}function Z(e,t){let n=t.name||`without a name`;if(e===`pool`)return`The pool ${n}`;let r=t.instanceCount??0;return`The ${e} ${n}, ${r} ${r===1?`instance`:`instances`}`}function ae(e){let[t,n]=f({of:``}),r=async t=>{n({of:e,isAsking:!0});try{let{service:r,method:i,request:a}=N(t),s=await o(r,i,a);n({of:e,plan:s,wanted:t})}catch(t){n({of:e,failure:t.message})}};return i(()=>n(t=>t.of===e?t:{of:``}),[e]),{...t.of===e?t:{},ask:r}}function oe({wanted:e,plan:t}){let{service:n,method:r,request:i}=N(e);return s(`section`,{"aria-label":`Plan`,children:[s(`h2`,{children:`Plan`}),e.kind===`pool`?s(ce,{plan:t}):s(se,{kind:e.kind,plan:t}),s(b,{command:te(e),service:n,method:r,request:i})]})}function se({kind:e,plan:n}){let{admittedInstances:r=0,waitingInstances:i=0,heldBackInstances:a=0,evictions:o=[]}=n,c=r+i+a,l=[i&&`${y(i)} would wait`,a&&`${y(a)} would be held back by the maximum of running instances`].filter(Boolean);return s(t,{children:[s(x,{label:`Instances`,parts:[{name:`admitted`,value:r,tone:`allocation`},{name:`would wait`,value:i,tone:`demand`},{name:`held back`,value:a,tone:`slack`}],whole:c,text:`${y(r)} of ${y(c,`instance`)} would be admitted now in ${n.poolPath}${l.length?`, ${l.join(`, `)}`:``}`}),n.waiting?.length||n.reasons?.length?s(w,{why:n}):null,s(C,{evictions:o}),!o.length&&s(`p`,{children:`Nothing would be evicted for it.`}),s(`p`,{class:`quiet`,children:[`Which hosts have room at this moment is not part of a plan.`,e===`service`&&` It is of all instances at once: batches, which come one after the other, are not.`]})]})}function ce({plan:e}){return s(t,{children:[e.isNew?s(`p`,{children:[e.poolPath,` would be a new pool.`]}):s(`p`,{class:`stale`,children:[e.poolPath,` exists: this is what changing it to this file would do. Creating it will be refused; `,s(`code`,{children:`peloton respool update`}),` changes it.`]}),s(S,{plan:e}),e.text&&s(`details`,{children:[s(`summary`,{children:`In words`}),s(`p`,{class:`lines`,children:e.text})]})]})}var Q=e=>`peloton-submit-${e}`;function $(e){return G(Q(e))??Object.values(q[e])[0]}function le({kind:e}){let[n]=f(()=>$(e)),[r,i]=f(n),[a,o]=f(!0),[c,l]=f(null),[u,d]=f(null),p=X(e,r,c),m=ue(e),[h,_]=f(0),v=p.of===r?p.message:void 0,y=v&&m.id?{kind:e,message:v,pool:m.path,poolId:m.id,batchSize:h}:null,b=ae(JSON.stringify([r,m.path,h]));return s(t,{children:[s(`div`,{class:`filters`,children:[s(de,{kind:e,pool:m}),e===`service`&&s(`label`,{children:[`Add at a time`,` `,s(`input`,{type:`number`,min:0,max:1e5,value:h||``,placeholder:`all`,onInput:e=>_(Math.max(0,Math.floor(Number(e.currentTarget.value))))})]}),s(`label`,{children:[`Example`,` `,s(`select`,{value:``,onChange:t=>{c?.replace(q[e][t.currentTarget.value]),t.currentTarget.value=``},children:[s(`option`,{value:``,children:`begin with …`}),Object.keys(q[e]).map(e=>s(`option`,{value:e,children:e},e))]})]}),s(fe,{take:e=>c?.replace(e)})]}),m.problem&&s(`p`,{class:`stale`,role:`alert`,children:m.problem}),s(re,{kind:e,initial:n,changed:t=>{i(t),d(null),o(W(Q(e),t))},ready:l}),!a&&s(`p`,{class:`stale`,children:`The text is too large to be kept when the page is loaded again.`}),s(ie,{kind:e,read:p,text:r,goTo:e=>c?.goTo(e)}),m.paths?.length&&!m.path?s(`p`,{class:`quiet`,children:`Choose a pool to plan it or to create it.`}):null,s(`p`,{class:`buttons`,children:[s(`button`,{type:`button`,disabled:!y||b.isAsking,onClick:()=>void b.ask(y),children:`Plan`}),s(pe,{wanted:y,done:d,isPlanned:!!b.plan})]}),!g.value.mayChange&&s(`p`,{class:`quiet`,children:`You may look and plan, and not create.`}),s(`div`,{"aria-live":`polite`,children:[u&&s(me,{created:u}),b.isAsking&&s(`p`,{class:`quiet`,"aria-busy":`true`,children:`Planning`}),b.failure&&s(`p`,{class:`stale`,role:`alert`,children:[`It cannot be planned: `,b.failure]}),b.plan&&b.wanted&&s(oe,{wanted:b.wanted,plan:b.plan})]}),s(he,{wanted:y,kind:e})]})}function ue(e){let{value:t}=a(`pools`),r=t?.filter(([t,,n])=>e===`pool`||n&&t!==`/`).map(([e])=>e),i=e===`pool`?`/`:r?.length===1?r[0]:``,o=n(e===`pool`?`parent`:`pool`)||i,{value:s,error:c}=v(o,async()=>o?{path:o,id:await j(o,e)}:null);return{path:o,paths:r,id:s?.path===o?s.id:void 0,problem:o?c?.message:void 0}}function de({kind:e,pool:t}){return e!==`pool`&&t.paths?.length===0&&!t.path?s(`p`,{children:[`There is no pool yet, and `,e,`s run in pools: `,s(`a`,{href:`/submit?kind=pool`,children:`create one`}),`.`]}):s(`label`,{children:[k[e],` `,s(`input`,{list:`pool-paths`,value:t.path,placeholder:`/path`,required:!0,"aria-invalid":!!t.problem,spellcheck:!1,autocomplete:`off`,onChange:t=>r({[e===`pool`?`parent`:`pool`]:t.currentTarget.value.trim()})}),s(`datalist`,{id:`pool-paths`,children:(t.paths??[]).map(e=>s(`option`,{value:e},e))})]})}function fe({take:n}){let r=e(null);return s(t,{children:[s(`input`,{ref:r,type:`file`,accept:`.yaml,.yml`,hidden:!0,onChange:async()=>{let e=r.current.files?.[0];e&&n(await e.text()),r.current.value=``}}),s(`button`,{type:`button`,onClick:()=>r.current.click(),children:`Open a file`})]})}function pe({wanted:t,isPlanned:n,done:r}){let a=e(null);i(()=>{t&&(a.current=t)},[t]);let o=t??a.current,c=o?.message.name||`it`;return s(_,{label:`Create`,title:`Create ${c}?`,act:async()=>{let e=await V(t);e.warnings.length?r(e):d(e.href)},disabled:!t,children:[o&&s(`p`,{children:[Z(o.kind,o.message),`, `,o.kind===`pool`?`as ${I(o.pool,o.message.name)}`:`in ${o.pool}`,o.batchSize?`, ${o.batchSize} at a time`:``,`.`]}),!n&&s(`p`,{class:`quiet`,children:`What would become of it has not been planned.`})]})}function me({created:e}){return s(`section`,{role:`status`,children:[s(`p`,{class:`fine`,children:[`Created: `,s(`a`,{href:e.href,children:e.name})]}),s(`ul`,{class:`wrong`,children:e.warnings.map(e=>s(`li`,{class:`warning`,children:[s(`strong`,{children:`Warning`}),`: `,e]},e))})]})}function he({wanted:e,kind:t}){let n=e??{kind:t,message:{name:`NAME`},pool:`/POOL`,poolId:`POOL-ID`,batchSize:0},{service:r,method:i,request:a}=P(n.message.parent?{...n,message:{...n.message,parent:void 0}}:n);return s(b,{command:ne(n),service:r,method:i,request:a})}function ge(){let e=O.find(e=>e===n(`kind`))??`job`;return s(t,{children:[s(`h1`,{children:`Submit`}),s(`nav`,{class:`tabs`,"aria-label":`What to submit`,children:O.map(t=>s(`a`,{href:_e(t),"aria-current":t===e?`page`:void 0,children:t[0].toUpperCase()+t.slice(1)},t))}),s(le,{kind:e},e)]})}function _e(e){let t=new URLSearchParams({kind:e});for(let e of[`pool`,`parent`])n(e)&&t.set(e,n(e));return`/submit?${t}`}export{ge as default};