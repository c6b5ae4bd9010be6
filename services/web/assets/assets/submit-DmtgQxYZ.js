import{A as e,F as t,G as n,J as r,K as i,L as a,R as o,U as s,V as c,W as l,Y as u,Z as d,g as f,x as p}from"./index-DejKmVc1.js";import{a as m,c as h,d as g,f as _,g as v,h as y,i as b,l as x,m as S,n as C,o as w,p as T,s as E,t as D,u as O}from"./submit-D59B2xEZ.js";import{t as k}from"./asked-BcNArZTf.js";import{t as A}from"./confirm-DBT47n0r.js";import{t as j}from"./bar-BiA05fm0.js";import{t as M}from"./same-as-BxNbn8-k.js";import{t as N}from"./why-BfMNAC2G.js";import{t as P}from"./typed-mRMb1quG.js";var F={job:{"a job":`# The first job: ten instances that say hello and sleep for a few seconds.
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
`}},I=300,L=3e3,R=[403,413];function z(e,t,n){let[r,a]=u({of:null,faults:[]}),[o,s]=u(0);return i(()=>{if(!n)return;let r=!1,i,o=e=>{if(r)return;let i=(e.faults??[]).map(n.inside),o=n.bounds().filter(e=>!i.some(t=>t.line===e.line)),s=[...i,...o].sort((e,t)=>e.line-t.line);n.show(s),a({...e,of:t,faults:s})},c=setTimeout(()=>{T(e,t).then(e=>o({message:e}),e=>{if(e.place)return o({faults:[{...e.place,text:e.message}]});o({failure:e.message}),!r&&!R.includes(e.status)&&(i=setTimeout(()=>s(e=>e+1),L))})},I);return()=>{r=!0,clearTimeout(c),clearTimeout(i)}},[e,t,n,o]),r}function B({kind:e,initial:t,changed:a,ready:s}){let c=r(null),[l,p]=u(`loading`);return i(()=>{let r=null,i=!1;return(async()=>{let[{edit:l},u]=await Promise.all([n(()=>import(`./editor-Bg_NcfKq.js`),[]),o(`/schemas/${e}.json`)]);i||(r=l(c.current,t,u,`YAML of the ${e}`,`editor-keys`,a),p(`there`),s(r))})().catch(e=>!i&&p({failure:e.message})),()=>{i=!0,r?.close()}},[]),f(d,{children:[l===`loading`&&f(`p`,{class:`quiet`,"aria-busy":`true`,children:`Loading the editor`}),typeof l==`object`&&f(`p`,{class:`stale`,role:`alert`,children:[`The editor could not be loaded, load the page again: `,l.failure]}),f(`div`,{class:`editor`,ref:c}),f(`p`,{class:`quiet`,id:`editor-keys`,children:[f(`kbd`,{children:`Ctrl`}),`+`,f(`kbd`,{children:`Space`}),` completes keys and values. `,f(`kbd`,{children:`Tab`}),` indents; `,f(`kbd`,{children:`Esc`}),` and then `,f(`kbd`,{children:`Tab`}),` leaves the editor.`]})]})}function V({kind:e,read:{message:t,faults:n,failure:r,of:i},text:a,goTo:o}){return f(`div`,{class:`faults`,role:`status`,children:[r&&f(`p`,{class:`stale`,children:[`Not checked: `,r]}),i===a&&t&&!n.length&&f(`p`,{class:`fine`,children:H(e,t)}),n.length>0&&f(`ul`,{class:`wrong`,children:n.map(e=>f(`li`,{class:`critical`,children:[f(`button`,{type:`button`,class:`plain`,onClick:()=>o(e),children:[`Line `,e.line,`, column `,e.column]}),`: `,e.text]},`${e.line} ${e.column} ${e.text}`))})]})}function H(e,t){let n=t.name||`without a name`;if(e===`pool`)return`The pool ${n}`;let r=t.instanceCount??0;return`The ${e} ${n}, ${r} ${r===1?`instance`:`instances`}`}function U(e){let[t,n]=u({of:``}),r=async t=>{n({of:e,isAsking:!0});try{let{service:r,method:i,request:o}=O(t),s=await a(r,i,o);n({of:e,plan:s,wanted:t})}catch(t){n({of:e,failure:t.message})}};return i(()=>n(t=>t.of===e?t:{of:``}),[e]),{...t.of===e?t:{},ask:r}}function W(e,t){if(e===`pool`)return`${t.poolPath} ${`isNew`in t&&t.isNew?`would be a new pool`:`exists, creating it will be refused`}`;let{admittedInstances:n=0,waitingInstances:r=0,heldBackInstances:i=0,room:a,daemon:o}=t;if(o?.length)return`a daemon: ${o.map(G).join(`; `)}`;let s=p(n+r+i,`instance`),c=[r&&`${p(r)} would wait`,i&&`${p(i)} would be limited by the maximum of running instances`].filter(Boolean);return a?.hostlessInstances&&c.unshift(`${p(a.hostlessInstances)} of these would wait for a host`),[`${p(n)} of ${s} would be admitted now in ${t.poolPath}`,...c].join(`, `)}function G({cluster:e,notKnown:t,hosts:n=0,matchingHosts:r=0,hostsWithRoom:i=0}){let a=e?`cluster ${e}: `:``;return t?`${a}not known: ${t}`:`${a}${p(r)} of ${p(n,`host`)} match, ${p(i)} with enough free resources now`}function K({wanted:e,plan:t}){let{service:n,method:r,request:i}=O(e);return f(`section`,{"aria-label":`Plan`,children:[f(`h2`,{children:`Plan`}),e.kind===`pool`?f(X,{plan:t}):f(J,{kind:e.kind,plan:t}),f(M,{title:`This plan from a terminal`,command:g(e),service:n,method:r,request:i})]})}var q=e=>e.split(`
`).map(e=>e.charAt(0).toUpperCase()+e.slice(1)).join(`
`);function J({kind:e,plan:t}){let{admittedInstances:n=0,waitingInstances:r=0,heldBackInstances:i=0,evictions:a=[],room:o}=t;return t.daemon?.length?f(Y,{plan:t,clusters:t.daemon}):f(d,{children:[f(j,{label:`Instances`,parts:[{name:`admitted`,value:n,tone:`allocation`},{name:`would wait`,value:r,tone:`demand`},{name:`over the maximum`,value:i,tone:`slack`}],whole:n+r+i,text:W(e,t)}),o?.text&&f(`p`,{class:o.notKnown?`lines stale`:`lines`,children:q(o.text)}),t.waiting?.length||t.reasons?.length?f(N,{why:t}):null,f(y,{evictions:a,names:t.jobNames}),!a.length&&f(`p`,{children:`No pods would be evicted for it.`}),e===`service`&&f(`p`,{class:`quiet`,children:`The plan is for all instances at once; batches are not planned.`})]})}function Y({plan:e,clusters:t}){return f(d,{children:[t.filter(e=>!e.notKnown).map(e=>{let t=[{name:`run at once`,value:e.hostsWithRoom??0,tone:`allocation`},{name:`after evictions`,value:e.evictingHosts??0,tone:`slack`},{name:`later`,value:(e.waitingHosts??0)+(e.uncheckedHosts??0)+(e.hostsInMaintenance??0),tone:`demand`}];return f(j,{label:e.cluster||`Hosts`,parts:t,whole:e.hosts??0,text:G(e)},e.cluster)}),f(`p`,{class:t.some(e=>e.notKnown)?`lines stale`:`lines`,children:e.text})]})}function X({plan:e}){return f(d,{children:[e.isNew?f(`p`,{children:[e.poolPath,` would be a new pool.`]}):f(`p`,{class:`stale`,children:[e.poolPath,` exists: this is what changing it to this file would do. Creating it will be refused; `,f(`code`,{children:`peloton respool update`}),` changes it.`]}),f(v,{plan:e}),e.text&&f(`details`,{children:[f(`summary`,{children:`In words`}),f(`p`,{class:`lines`,children:e.text})]})]})}var Z=e=>`peloton-submit-${e}`;function Q(e){return S(Z(e))??Object.values(F[e])[0]}function $({kind:e}){let[n]=u(()=>Q(e)),[r,i]=u(n),[a,o]=u(!0),[s,c]=u(null),[l,p]=u(null),m=z(e,r,s),g=te(e),[_,v]=u(0),y=m.of===r?m.message:void 0,b=y&&g.id?{kind:e,message:y,pool:g.path,poolId:g.id,batchSize:_}:null,x=U(JSON.stringify([r,g.path,_])),S=ee(e,s);return f(d,{children:[f(`div`,{class:`filters`,children:[f(ne,{kind:e,pool:g}),e===`service`&&f(`label`,{children:[`Add at a time`,` `,f(`input`,{type:`number`,min:0,max:1e5,value:_||``,placeholder:`all`,onInput:e=>v(Math.max(0,Math.floor(Number(e.currentTarget.value))))})]}),f(`label`,{children:[`Example`,` `,f(`select`,{value:``,onChange:t=>{s?.replace(F[e][t.currentTarget.value]),t.currentTarget.value=``},children:[f(`option`,{value:``,children:`begin with …`}),Object.keys(F[e]).map(e=>f(`option`,{value:e,children:e},e))]})]}),f(re,{take:e=>s?.replace(e)})]}),S&&f(`p`,{class:`stale`,role:`alert`,children:S}),g.away?f(`p`,{class:`stale`,role:`alert`,children:[`It can be written now, and neither planned nor created: `,g.away]}):g.problem&&f(`p`,{class:`stale`,role:`alert`,children:g.problem}),f(B,{kind:e,initial:n,changed:t=>{i(t),p(null),o(h(Z(e),t))},ready:c}),!a&&f(`p`,{class:`stale`,children:`The text is too large to be kept when the page is loaded again.`}),f(V,{kind:e,read:m,text:r,goTo:e=>s?.goTo(e)}),g.paths?.length&&!g.path?f(`p`,{class:`quiet`,children:`Choose a pool to plan it or to create it.`}):null,f(`p`,{class:`buttons`,children:[f(`button`,{type:`button`,disabled:!b||x.isAsking,onClick:()=>void x.ask(b),children:`Plan`}),f(ie,{wanted:b,done:p,plan:x.plan&&W(e,x.plan)})]}),t.value.viewer&&!t.value.mayChange&&f(`p`,{class:`quiet`,children:`You may view and plan, but not create.`}),f(`div`,{"aria-live":`polite`,children:[l&&f(ae,{created:l}),x.isAsking&&f(`p`,{class:`quiet`,"aria-busy":`true`,children:`Planning`}),x.failure&&f(`p`,{class:`stale`,role:`alert`,children:[`It cannot be planned: `,x.failure]}),x.plan&&x.wanted&&f(K,{wanted:x.wanted,plan:x.plan})]}),f(oe,{wanted:b,kind:e})]})}function ee(e,t){let n=e===`pool`?``:s(`from`),[r,a]=u(``);return i(()=>{if(!n||!t)return;let r=!1;return E(e,n).then(e=>{r||(t.replace(e),l({from:``}))},t=>!r&&a(`The ${e} ${n} could not be read: ${t.message}`)),()=>{r=!0}},[n,t]),r}function te(t){let{value:n,error:r}=e(`pools`),i=n?.filter(([e,,n])=>t===`pool`||n&&e!==`/`).map(([e])=>e),a=t===`pool`?`/`:i?.length===1?i[0]:``,o=s(t===`pool`?`parent`:`pool`)||a,{value:c,error:l}=k(o,async()=>o?{path:o,id:await _(o,t)}:null);return{path:o,paths:i,id:c?.path===o?c.id:void 0,away:r?.message,problem:o?l?.message:void 0}}function ne({kind:e,pool:t}){return e!==`pool`&&t.paths?.length===0&&!t.path?f(`p`,{children:[`There is no pool yet, and `,e,`s run in pools: `,f(`a`,{href:`/submit?kind=pool`,children:`create one`}),`.`]}):f(`label`,{children:[C[e],` `,f(P,{list:`pool-paths`,value:t.path,placeholder:`/path`,isWrong:!!t.problem,take:t=>l({[e===`pool`?`parent`:`pool`]:t})}),f(`datalist`,{id:`pool-paths`,children:(t.paths??[]).map(e=>f(`option`,{value:e},e))})]})}function re({take:e}){let t=r(null);return f(d,{children:[f(`input`,{ref:t,type:`file`,accept:`.yaml,.yml`,hidden:!0,onChange:async()=>{let n=t.current.files?.[0];n&&e(await n.text()),t.current.value=``}}),f(`button`,{type:`button`,onClick:()=>t.current.click(),children:`Open a file`})]})}function ie({wanted:e,plan:t,done:n}){let a=r(null);i(()=>{e&&(a.current=e)},[e]);let o=e??a.current,s=o?.message.name||`it`;return f(A,{label:`Create`,weight:`primary`,title:`Create ${s}?`,act:async()=>{let t=await b(e);t.warnings.length?n(t):c(t.href)},disabled:!e,children:[o&&f(`p`,{children:[H(o.kind,o.message),`, `,o.kind===`pool`?`as ${x(o.pool,o.message.name)}`:`in ${o.pool}`,o.batchSize?`, ${o.batchSize} at a time`:``,`.`]}),t?f(`p`,{children:[`By its plan: `,t,`.`]}):f(`p`,{class:`quiet`,children:`It has not been planned.`})]})}function ae({created:e}){return f(`section`,{role:`status`,children:[f(`p`,{class:`fine`,children:[`Created: `,f(`a`,{href:e.href,children:e.name})]}),f(`ul`,{class:`wrong`,children:e.warnings.map(e=>f(`li`,{class:`warning`,children:[f(`strong`,{children:`Warning`}),`: `,e]},e))})]})}function oe({wanted:e,kind:t}){let n=e??{kind:t,message:{name:`NAME`},pool:`/POOL`,poolId:`POOL-ID`,batchSize:0},{service:r,method:i,request:a}=m(n.message.parent?{...n,message:{...n.message,parent:void 0}}:n);return f(M,{title:`Creating it from a terminal`,command:w(n),service:r,method:i,request:a})}function se(){let e=D.find(e=>e===s(`kind`))??`job`;return f(d,{children:[f(`h1`,{children:`Submit`}),f(`nav`,{class:`tabs`,"aria-label":`What to submit`,children:D.map(t=>f(`a`,{href:ce(t),"aria-current":t===e?`page`:void 0,children:t[0].toUpperCase()+t.slice(1)},t))}),f($,{kind:e},e)]})}function ce(e){let t=new URLSearchParams({kind:e});for(let e of[`pool`,`parent`])s(e)&&t.set(e,s(e));return`/submit?${t}`}export{se as default};