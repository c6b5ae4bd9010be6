import{B as e,K as t,N as n,R as r,U as i,V as a,W as o,Y as s,f as c,p as l,q as u,w as d,y as f}from"./index-MralZvWj.js";import{a as p,c as m,d as h,f as g,g as _,h as v,i as y,l as b,m as x,n as ee,o as S,p as C,s as w,t as T,u as E}from"./submit-LfsJGTbW.js";import{t as D}from"./settings-E5N-rLJd.js";import{t as O}from"./asked-CkVacOTT.js";import{t as k}from"./confirm-ZcJWO8tS.js";import{t as A}from"./bar-Dvqt9laZ.js";import{t as j}from"./same-as-DTZ1ZbGE.js";import{t as M}from"./why-dznubUYV.js";import{t as N}from"./typed-DHOzC4mU.js";var P={job:{"a job":`# The first job: ten instances that say hello and sleep for a few seconds.
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
`}},F=300,I=3e3,L=[403,413];function R(e,t,n){let[r,i]=u({of:null,faults:[]}),[a,s]=u(0);return o(()=>{if(!n)return;let r=!1,a,o=e=>{if(r)return;let a=(e.faults??[]).map(n.inside),o=n.bounds().filter(e=>!a.some(t=>t.line===e.line)),s=[...a,...o].sort((e,t)=>e.line-t.line);n.show(s),i({...e,of:t,faults:s})},c=setTimeout(()=>{C(e,t).then(e=>o({message:e}),e=>{if(e.place)return o({faults:[{...e.place,text:e.message}]});o({failure:e.message}),!r&&!L.includes(e.status)&&(a=setTimeout(()=>s(e=>e+1),I))})},F);return()=>{r=!0,clearTimeout(c),clearTimeout(a)}},[e,t,n,a]),r}function z({kind:e,initial:n,changed:r,ready:a}){let c=t(null),[d,p]=u(`loading`);return o(()=>{let t=null,o=!1;return(async()=>{let[{edit:s},u]=await Promise.all([i(()=>import(`./editor-Bg_NcfKq.js`),[]),l(`/schemas/${e}.json`)]);o||(t=s(c.current,n,u,`YAML of the ${e}`,`editor-keys`,r),p(`there`),a(t))})().catch(e=>!o&&p({failure:e.message})),()=>{o=!0,t?.close()}},[]),f(s,{children:[d===`loading`&&f(`p`,{class:`quiet`,"aria-busy":`true`,children:`Loading the editor`}),typeof d==`object`&&f(`p`,{class:`stale`,role:`alert`,children:[`The editor could not be loaded, load the page again: `,d.failure]}),f(`div`,{class:`editor`,ref:c}),f(`p`,{class:`quiet`,id:`editor-keys`,children:[f(`kbd`,{children:`Ctrl`}),`+`,f(`kbd`,{children:`Space`}),` completes keys and values. `,f(`kbd`,{children:`Tab`}),` indents; `,f(`kbd`,{children:`Esc`}),` and then `,f(`kbd`,{children:`Tab`}),` leaves the editor.`]})]})}function B({kind:e,read:{message:t,faults:n,failure:r,of:i},text:a,goTo:o}){return f(`div`,{class:`faults`,role:`status`,children:[r&&f(`p`,{class:`stale`,children:[`Not checked: `,r]}),i===a&&t&&!n.length&&f(`p`,{class:`fine`,children:V(e,t)}),n.length>0&&f(`ul`,{class:`wrong`,children:n.map(e=>f(`li`,{class:`critical`,children:[f(`button`,{type:`button`,class:`plain`,onClick:()=>o(e),children:[`Line `,e.line,`, column `,e.column]}),`: `,e.text]},`${e.line} ${e.column} ${e.text}`))})]})}function V(e,t){let n=t.name||`without a name`;if(e===`pool`)return`The pool ${n}`;let r=t.instanceCount??0;return`The ${e} ${n}, ${r} ${r===1?`instance`:`instances`}`}function H(e){let[t,n]=u({of:``}),r=async t=>{n({of:e,isAsking:!0});try{let{service:r,method:i,request:a}=E(t),o=await c(r,i,a);n({of:e,plan:o,wanted:t})}catch(t){n({of:e,failure:t.message})}};return o(()=>n(t=>t.of===e?t:{of:``}),[e]),{...t.of===e?t:{},ask:r}}function U(e,t){if(e===`pool`)return`${t.poolPath} ${`isNew`in t&&t.isNew?`would be a new pool`:`exists, creating it will be refused`}`;let{admittedInstances:n=0,waitingInstances:r=0,heldBackInstances:i=0,room:a,daemon:o}=t;if(o?.length)return`a daemon: ${o.map(W).join(`; `)}`;let s=d(n+r+i,`instance`),c=[r&&`${d(r)} would wait`,i&&`${d(i)} would be limited by the maximum of running instances`].filter(Boolean);return a?.hostlessInstances&&c.unshift(`${d(a.hostlessInstances)} of these would wait for a host`),[`${d(n)} of ${s} would be admitted now in ${t.poolPath}`,...c].join(`, `)}function W({cluster:e,notKnown:t,hosts:n=0,matchingHosts:r=0,hostsWithRoom:i=0}){let a=e?`cluster ${e}: `:``;return t?`${a}not known: ${t}`:`${a}${d(r)} of ${d(n,`host`)} match, ${d(i)} with enough free resources now`}function G({wanted:e,plan:t}){let{service:n,method:r,request:i}=E(e);return f(`section`,{"aria-label":`Plan`,children:[f(`h2`,{children:`Plan`}),e.kind===`pool`?f(Y,{plan:t}):f(q,{kind:e.kind,plan:t}),f(j,{title:`This plan from a terminal`,command:h(e),service:n,method:r,request:i})]})}var K=e=>e.split(`
`).map(e=>e.charAt(0).toUpperCase()+e.slice(1)).join(`
`);function q({kind:e,plan:t}){let{admittedInstances:n=0,waitingInstances:r=0,heldBackInstances:i=0,evictions:a=[],room:o}=t;return t.daemon?.length?f(J,{plan:t,clusters:t.daemon}):f(s,{children:[f(A,{label:`Instances`,parts:[{name:`admitted`,value:n,tone:`allocation`},{name:`would wait`,value:r,tone:`demand`},{name:`over the maximum`,value:i,tone:`slack`}],whole:n+r+i,text:U(e,t)}),o?.text&&f(`p`,{class:o.notKnown?`lines stale`:`lines`,children:K(o.text)}),t.waiting?.length||t.reasons?.length?f(M,{why:t}):null,f(v,{evictions:a,names:t.jobNames}),!a.length&&f(`p`,{children:`No pods would be evicted for it.`}),e===`service`&&f(`p`,{class:`quiet`,children:`The plan is for all instances at once; batches are not planned.`})]})}function J({plan:e,clusters:t}){return f(s,{children:[t.filter(e=>!e.notKnown).map(e=>{let t=[{name:`run at once`,value:e.hostsWithRoom??0,tone:`allocation`},{name:`after evictions`,value:e.evictingHosts??0,tone:`slack`},{name:`later`,value:(e.waitingHosts??0)+(e.uncheckedHosts??0)+(e.hostsInMaintenance??0),tone:`demand`}];return f(A,{label:e.cluster||`Hosts`,parts:t,whole:e.hosts??0,text:W(e)},e.cluster)}),f(`p`,{class:t.some(e=>e.notKnown)?`lines stale`:`lines`,children:e.text})]})}function Y({plan:e}){return f(s,{children:[e.isNew?f(`p`,{children:[e.poolPath,` would be a new pool.`]}):f(`p`,{class:`stale`,children:[e.poolPath,` exists: this is what changing it to this file would do. Creating it will be refused; `,f(`code`,{children:`peloton respool update`}),` changes it.`]}),f(_,{plan:e}),e.text&&f(`details`,{children:[f(`summary`,{children:`In words`}),f(`p`,{class:`lines`,children:e.text})]})]})}var X=e=>`peloton-submit-${e}`;function Z(e){return x(X(e))??Object.values(P[e])[0]}function Q({kind:e}){let[t]=u(()=>Z(e)),[n,r]=u(t),[i,a]=u(!0),[o,c]=u(null),[l,d]=u(null),p=R(e,n,o),h=ne(e),[g,_]=u(0),v=p.of===n?p.message:void 0,y=v&&h.id?{kind:e,message:v,pool:h.path,poolId:h.id,batchSize:g}:null,b=H(JSON.stringify([n,h.path,g])),x=te(e,o);return f(s,{children:[f(`div`,{class:`filters`,children:[f(re,{kind:e,pool:h}),e===`service`&&f(`label`,{children:[`Add at a time`,` `,f(`input`,{type:`number`,min:0,max:1e5,value:g||``,placeholder:`all`,onInput:e=>_(Math.max(0,Math.floor(Number(e.currentTarget.value))))})]}),f(`label`,{children:[`Example`,` `,f(`select`,{value:``,onChange:t=>{o?.replace(P[e][t.currentTarget.value]),t.currentTarget.value=``},children:[f(`option`,{value:``,children:`begin with …`}),Object.keys(P[e]).map(e=>f(`option`,{value:e,children:e},e))]})]}),f($,{take:e=>o?.replace(e)})]}),x&&f(`p`,{class:`stale`,role:`alert`,children:x}),h.away?f(`p`,{class:`stale`,role:`alert`,children:[`It can be written now, and neither planned nor created: `,h.away]}):h.problem&&f(`p`,{class:`stale`,role:`alert`,children:h.problem}),f(z,{kind:e,initial:t,changed:t=>{r(t),d(null),a(m(X(e),t))},ready:c}),!i&&f(`p`,{class:`stale`,children:`The text is too large to be kept when the page is loaded again.`}),f(B,{kind:e,read:p,text:n,goTo:e=>o?.goTo(e)}),h.paths?.length&&!h.path?f(`p`,{class:`quiet`,children:`Choose a pool to plan it or to create it.`}):null,f(`p`,{class:`buttons`,children:[f(`button`,{type:`button`,disabled:!y||b.isAsking,onClick:()=>void b.ask(y),children:`Plan`}),f(ie,{wanted:y,done:d,plan:b.plan&&U(e,b.plan)})]}),D.value.viewer&&!D.value.mayChange&&f(`p`,{class:`quiet`,children:`You may view and plan, but not create.`}),f(`div`,{"aria-live":`polite`,children:[l&&f(ae,{created:l}),b.isAsking&&f(`p`,{class:`quiet`,"aria-busy":`true`,children:`Planning`}),b.failure&&f(`p`,{class:`stale`,role:`alert`,children:[`It cannot be planned: `,b.failure]}),b.plan&&b.wanted&&f(G,{wanted:b.wanted,plan:b.plan})]}),f(oe,{wanted:y,kind:e})]})}function te(t,n){let r=t===`pool`?``:e(`from`),[i,s]=u(``);return o(()=>{if(!r||!n)return;let e=!1;return w(t,r).then(t=>{e||(n.replace(t),a({from:``}))},n=>!e&&s(`The ${t} ${r} could not be read: ${n.message}`)),()=>{e=!0}},[r,n]),i}function ne(t){let{value:r,error:i}=n(`pools`),a=r?.filter(([e,,n])=>t===`pool`||n&&e!==`/`).map(([e])=>e),o=t===`pool`?`/`:a?.length===1?a[0]:``,s=e(t===`pool`?`parent`:`pool`)||o,{value:c,error:l}=O(s,async()=>s?{path:s,id:await g(s,t)}:null);return{path:s,paths:a,id:c?.path===s?c.id:void 0,away:i?.message,problem:s?l?.message:void 0}}function re({kind:e,pool:t}){return e!==`pool`&&t.paths?.length===0&&!t.path?f(`p`,{children:[`There is no pool yet, and `,e,`s run in pools: `,f(`a`,{href:`/submit?kind=pool`,children:`create one`}),`.`]}):f(`label`,{children:[ee[e],` `,f(N,{list:`pool-paths`,value:t.path,placeholder:`/path`,isWrong:!!t.problem,take:t=>a({[e===`pool`?`parent`:`pool`]:t})}),f(`datalist`,{id:`pool-paths`,children:(t.paths??[]).map(e=>f(`option`,{value:e},e))})]})}function $({take:e}){let n=t(null);return f(s,{children:[f(`input`,{ref:n,type:`file`,accept:`.yaml,.yml`,hidden:!0,onChange:async()=>{let t=n.current.files?.[0];t&&e(await t.text()),n.current.value=``}}),f(`button`,{type:`button`,onClick:()=>n.current.click(),children:`Open a file`})]})}function ie({wanted:e,plan:n,done:i}){let a=t(null);o(()=>{e&&(a.current=e)},[e]);let s=e??a.current,c=s?.message.name||`it`;return f(k,{label:`Create`,weight:`primary`,title:`Create ${c}?`,act:async()=>{let t=await y(e);t.warnings.length?i(t):r(t.href)},disabled:!e,children:[s&&f(`p`,{children:[V(s.kind,s.message),`, `,s.kind===`pool`?`as ${b(s.pool,s.message.name)}`:`in ${s.pool}`,s.batchSize?`, ${s.batchSize} at a time`:``,`.`]}),n?f(`p`,{children:[`By its plan: `,n,`.`]}):f(`p`,{class:`quiet`,children:`It has not been planned.`})]})}function ae({created:e}){return f(`section`,{role:`status`,children:[f(`p`,{class:`fine`,children:[`Created: `,f(`a`,{href:e.href,children:e.name})]}),f(`ul`,{class:`wrong`,children:e.warnings.map(e=>f(`li`,{class:`warning`,children:[f(`strong`,{children:`Warning`}),`: `,e]},e))})]})}function oe({wanted:e,kind:t}){let n=e??{kind:t,message:{name:`NAME`},pool:`/POOL`,poolId:`POOL-ID`,batchSize:0},{service:r,method:i,request:a}=p(n.message.parent?{...n,message:{...n.message,parent:void 0}}:n);return f(j,{title:`Creating it from a terminal`,command:S(n),service:r,method:i,request:a})}function se(){let t=T.find(t=>t===e(`kind`))??`job`;return f(s,{children:[f(`h1`,{children:`Submit`}),f(`nav`,{class:`tabs`,"aria-label":`What to submit`,children:T.map(e=>f(`a`,{href:ce(e),"aria-current":e===t?`page`:void 0,children:e[0].toUpperCase()+e.slice(1)},e))}),f(Q,{kind:t},t)]})}function ce(t){let n=new URLSearchParams({kind:t});for(let t of[`pool`,`parent`])e(t)&&n.set(t,e(t));return`/submit?${n}`}export{se as default};