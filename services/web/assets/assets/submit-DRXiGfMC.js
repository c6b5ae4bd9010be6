import{G as e,H as t,J as n,P as r,T as i,V as a,W as o,X as s,b as c,m as l,p as u,q as d,z as f}from"./index-BwOfZY1U.js";import{a as p,c as m,d as h,f as g,g as _,h as v,i as y,l as b,m as x,n as ee,o as S,p as C,s as w,t as T,u as E}from"./submit-yj0Ycuiw.js";import{t as D}from"./settings-BMzBmt50.js";import{t as O}from"./asked-D0qTm920.js";import{t as k}from"./confirm-Dw12shat.js";import{t as A}from"./bar-BkWD-V3v.js";import{t as j}from"./same-as-CgvWpCpx.js";import{t as M}from"./why-CDGTBTsd.js";import{t as N}from"./typed-B6Ynr-5U.js";var P={job:{"a job":`# The first job: ten instances that say hello and sleep for a few seconds.
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
`}},F=300,I=3e3,L=[403,413];function R(t,r,i){let[a,o]=n({of:null,faults:[]}),[s,c]=n(0);return e(()=>{if(!i)return;let e=!1,n,a=t=>{if(e)return;let n=(t.faults??[]).map(i.inside),a=i.bounds().filter(e=>!n.some(t=>t.line===e.line)),s=[...n,...a].sort((e,t)=>e.line-t.line);i.show(s),o({...t,of:r,faults:s})},s=setTimeout(()=>{C(t,r).then(e=>a({message:e}),t=>{if(t.place)return a({faults:[{...t.place,text:t.message}]});a({failure:t.message}),!e&&!L.includes(t.status)&&(n=setTimeout(()=>c(e=>e+1),I))})},F);return()=>{e=!0,clearTimeout(s),clearTimeout(n)}},[t,r,i,s]),a}function z({kind:t,initial:r,changed:i,ready:a}){let u=d(null),[f,p]=n(`loading`);return e(()=>{let e=null,n=!1;return(async()=>{let[{edit:s},c]=await Promise.all([o(()=>import(`./editor-Bg_NcfKq.js`),[]),l(`/schemas/${t}.json`)]);n||(e=s(u.current,r,c,`YAML of the ${t}`,`editor-keys`,i),p(`there`),a(e))})().catch(e=>!n&&p({failure:e.message})),()=>{n=!0,e?.close()}},[]),c(s,{children:[f===`loading`&&c(`p`,{class:`quiet`,"aria-busy":`true`,children:`Loading the editor`}),typeof f==`object`&&c(`p`,{class:`stale`,role:`alert`,children:[`The editor could not be loaded, load the page again: `,f.failure]}),c(`div`,{class:`editor`,ref:u}),c(`p`,{class:`quiet`,id:`editor-keys`,children:[c(`kbd`,{children:`Ctrl`}),`+`,c(`kbd`,{children:`Space`}),` completes keys and values. `,c(`kbd`,{children:`Tab`}),` indents; `,c(`kbd`,{children:`Esc`}),` and then `,c(`kbd`,{children:`Tab`}),` leaves the editor.`]})]})}function B({kind:e,read:{message:t,faults:n,failure:r,of:i},text:a,goTo:o}){return c(`div`,{class:`faults`,role:`status`,children:[r&&c(`p`,{class:`stale`,children:[`Not checked: `,r]}),i===a&&t&&!n.length&&c(`p`,{class:`fine`,children:V(e,t)}),n.length>0&&c(`ul`,{class:`wrong`,children:n.map(e=>c(`li`,{class:`critical`,children:[c(`button`,{type:`button`,class:`plain`,onClick:()=>o(e),children:[`Line `,e.line,`, column `,e.column]}),`: `,e.text]},`${e.line} ${e.column} ${e.text}`))})]})}function V(e,t){let n=t.name||`without a name`;if(e===`pool`)return`The pool ${n}`;let r=t.instanceCount??0;return`The ${e} ${n}, ${r} ${r===1?`instance`:`instances`}`}function H(t){let[r,i]=n({of:``}),a=async e=>{i({of:t,isAsking:!0});try{let{service:n,method:r,request:a}=E(e),o=await u(n,r,a);i({of:t,plan:o,wanted:e})}catch(e){i({of:t,failure:e.message})}};return e(()=>i(e=>e.of===t?e:{of:``}),[t]),{...r.of===t?r:{},ask:a}}function U(e,t){if(e===`pool`)return`${t.poolPath} ${`isNew`in t&&t.isNew?`would be a new pool`:`exists, creating it will be refused`}`;let{admittedInstances:n=0,waitingInstances:r=0,heldBackInstances:a=0,room:o,daemon:s}=t;if(s?.length)return`a daemon: ${s.map(W).join(`; `)}`;let c=i(n+r+a,`instance`),l=[r&&`${i(r)} would wait`,a&&`${i(a)} would be limited by the maximum of running instances`].filter(Boolean);return o?.hostlessInstances&&l.unshift(`${i(o.hostlessInstances)} of these would wait for a host`),[`${i(n)} of ${c} would be admitted now in ${t.poolPath}`,...l].join(`, `)}function W({cluster:e,notKnown:t,hosts:n=0,matchingHosts:r=0,hostsWithRoom:a=0}){let o=e?`cluster ${e}: `:``;return t?`${o}not known: ${t}`:`${o}${i(r)} of ${i(n,`host`)} match, ${i(a)} with enough free resources now`}function G({wanted:e,plan:t}){let{service:n,method:r,request:i}=E(e);return c(`section`,{"aria-label":`Plan`,children:[c(`h2`,{children:`Plan`}),e.kind===`pool`?c(Y,{plan:t}):c(q,{kind:e.kind,plan:t}),c(j,{title:`This plan from a terminal`,command:h(e),service:n,method:r,request:i})]})}var K=e=>e.split(`
`).map(e=>e.charAt(0).toUpperCase()+e.slice(1)).join(`
`);function q({kind:e,plan:t}){let{admittedInstances:n=0,waitingInstances:r=0,heldBackInstances:i=0,evictions:a=[],room:o}=t;return t.daemon?.length?c(J,{plan:t,clusters:t.daemon}):c(s,{children:[c(A,{label:`Instances`,parts:[{name:`admitted`,value:n,tone:`allocation`},{name:`would wait`,value:r,tone:`demand`},{name:`over the maximum`,value:i,tone:`slack`}],whole:n+r+i,text:U(e,t)}),o?.text&&c(`p`,{class:o.notKnown?`lines stale`:`lines`,children:K(o.text)}),t.waiting?.length||t.reasons?.length?c(M,{why:t}):null,c(v,{evictions:a,names:t.jobNames}),!a.length&&c(`p`,{children:`No pods would be evicted for it.`}),e===`service`&&c(`p`,{class:`quiet`,children:`The plan is for all instances at once; batches are not planned.`})]})}function J({plan:e,clusters:t}){return c(s,{children:[t.filter(e=>!e.notKnown).map(e=>{let t=[{name:`run at once`,value:e.hostsWithRoom??0,tone:`allocation`},{name:`after evictions`,value:e.evictingHosts??0,tone:`slack`},{name:`later`,value:(e.waitingHosts??0)+(e.uncheckedHosts??0)+(e.hostsInMaintenance??0),tone:`demand`}];return c(A,{label:e.cluster||`Hosts`,parts:t,whole:e.hosts??0,text:W(e)},e.cluster)}),c(`p`,{class:t.some(e=>e.notKnown)?`lines stale`:`lines`,children:e.text})]})}function Y({plan:e}){return c(s,{children:[e.isNew?c(`p`,{children:[e.poolPath,` would be a new pool.`]}):c(`p`,{class:`stale`,children:[e.poolPath,` exists: this is what changing it to this file would do. Creating it will be refused; `,c(`code`,{children:`peloton respool update`}),` changes it.`]}),c(_,{plan:e}),e.text&&c(`details`,{children:[c(`summary`,{children:`In words`}),c(`p`,{class:`lines`,children:e.text})]})]})}var X=e=>`peloton-submit-${e}`;function Z(e){return x(X(e))??Object.values(P[e])[0]}function Q({kind:e}){let[t]=n(()=>Z(e)),[r,i]=n(t),[a,o]=n(!0),[l,u]=n(null),[d,f]=n(null),p=R(e,r,l),h=ne(e),[g,_]=n(0),v=p.of===r?p.message:void 0,y=v&&h.id?{kind:e,message:v,pool:h.path,poolId:h.id,batchSize:g}:null,b=H(JSON.stringify([r,h.path,g])),x=te(e,l);return c(s,{children:[c(`div`,{class:`filters`,children:[c(re,{kind:e,pool:h}),e===`service`&&c(`label`,{children:[`Add at a time`,` `,c(`input`,{type:`number`,min:0,max:1e5,value:g||``,placeholder:`all`,onInput:e=>_(Math.max(0,Math.floor(Number(e.currentTarget.value))))})]}),c(`label`,{children:[`Example`,` `,c(`select`,{value:``,onChange:t=>{l?.replace(P[e][t.currentTarget.value]),t.currentTarget.value=``},children:[c(`option`,{value:``,children:`begin with …`}),Object.keys(P[e]).map(e=>c(`option`,{value:e,children:e},e))]})]}),c($,{take:e=>l?.replace(e)})]}),x&&c(`p`,{class:`stale`,role:`alert`,children:x}),h.away?c(`p`,{class:`stale`,role:`alert`,children:[`It can be written now, and neither planned nor created: `,h.away]}):h.problem&&c(`p`,{class:`stale`,role:`alert`,children:h.problem}),c(z,{kind:e,initial:t,changed:t=>{i(t),f(null),o(m(X(e),t))},ready:u}),!a&&c(`p`,{class:`stale`,children:`The text is too large to be kept when the page is loaded again.`}),c(B,{kind:e,read:p,text:r,goTo:e=>l?.goTo(e)}),h.paths?.length&&!h.path?c(`p`,{class:`quiet`,children:`Choose a pool to plan it or to create it.`}):null,c(`p`,{class:`buttons`,children:[c(`button`,{type:`button`,disabled:!y||b.isAsking,onClick:()=>void b.ask(y),children:`Plan`}),c(ie,{wanted:y,done:f,plan:b.plan&&U(e,b.plan)})]}),D.value.viewer&&!D.value.mayChange&&c(`p`,{class:`quiet`,children:`You may view and plan, but not create.`}),c(`div`,{"aria-live":`polite`,children:[d&&c(ae,{created:d}),b.isAsking&&c(`p`,{class:`quiet`,"aria-busy":`true`,children:`Planning`}),b.failure&&c(`p`,{class:`stale`,role:`alert`,children:[`It cannot be planned: `,b.failure]}),b.plan&&b.wanted&&c(G,{wanted:b.wanted,plan:b.plan})]}),c(oe,{wanted:y,kind:e})]})}function te(r,i){let o=r===`pool`?``:a(`from`),[s,c]=n(``);return e(()=>{if(!o||!i)return;let e=!1;return w(r,o).then(n=>{e||(i.replace(n),t({from:``}))},t=>!e&&c(`The ${r} ${o} could not be read: ${t.message}`)),()=>{e=!0}},[o,i]),s}function ne(e){let{value:t,error:n}=r(`pools`),i=t?.filter(([t,,n])=>e===`pool`||n&&t!==`/`).map(([e])=>e),o=e===`pool`?`/`:i?.length===1?i[0]:``,s=a(e===`pool`?`parent`:`pool`)||o,{value:c,error:l}=O(s,async()=>s?{path:s,id:await g(s,e)}:null);return{path:s,paths:i,id:c?.path===s?c.id:void 0,away:n?.message,problem:s?l?.message:void 0}}function re({kind:e,pool:n}){return e!==`pool`&&n.paths?.length===0&&!n.path?c(`p`,{children:[`There is no pool yet, and `,e,`s run in pools: `,c(`a`,{href:`/submit?kind=pool`,children:`create one`}),`.`]}):c(`label`,{children:[ee[e],` `,c(N,{list:`pool-paths`,value:n.path,placeholder:`/path`,isWrong:!!n.problem,take:n=>t({[e===`pool`?`parent`:`pool`]:n})}),c(`datalist`,{id:`pool-paths`,children:(n.paths??[]).map(e=>c(`option`,{value:e},e))})]})}function $({take:e}){let t=d(null);return c(s,{children:[c(`input`,{ref:t,type:`file`,accept:`.yaml,.yml`,hidden:!0,onChange:async()=>{let n=t.current.files?.[0];n&&e(await n.text()),t.current.value=``}}),c(`button`,{type:`button`,onClick:()=>t.current.click(),children:`Open a file`})]})}function ie({wanted:t,plan:n,done:r}){let i=d(null);e(()=>{t&&(i.current=t)},[t]);let a=t??i.current,o=a?.message.name||`it`;return c(k,{label:`Create`,weight:`primary`,title:`Create ${o}?`,act:async()=>{let e=await y(t);e.warnings.length?r(e):f(e.href)},disabled:!t,children:[a&&c(`p`,{children:[V(a.kind,a.message),`, `,a.kind===`pool`?`as ${b(a.pool,a.message.name)}`:`in ${a.pool}`,a.batchSize?`, ${a.batchSize} at a time`:``,`.`]}),n?c(`p`,{children:[`By its plan: `,n,`.`]}):c(`p`,{class:`quiet`,children:`It has not been planned.`})]})}function ae({created:e}){return c(`section`,{role:`status`,children:[c(`p`,{class:`fine`,children:[`Created: `,c(`a`,{href:e.href,children:e.name})]}),c(`ul`,{class:`wrong`,children:e.warnings.map(e=>c(`li`,{class:`warning`,children:[c(`strong`,{children:`Warning`}),`: `,e]},e))})]})}function oe({wanted:e,kind:t}){let n=e??{kind:t,message:{name:`NAME`},pool:`/POOL`,poolId:`POOL-ID`,batchSize:0},{service:r,method:i,request:a}=p(n.message.parent?{...n,message:{...n.message,parent:void 0}}:n);return c(j,{title:`Creating it from a terminal`,command:S(n),service:r,method:i,request:a})}function se(){let e=T.find(e=>e===a(`kind`))??`job`;return c(s,{children:[c(`h1`,{children:`Submit`}),c(`nav`,{class:`tabs`,"aria-label":`What to submit`,children:T.map(t=>c(`a`,{href:ce(t),"aria-current":t===e?`page`:void 0,children:t[0].toUpperCase()+t.slice(1)},t))}),c(Q,{kind:e},e)]})}function ce(e){let t=new URLSearchParams({kind:e});for(let e of[`pool`,`parent`])a(e)&&t.set(e,a(e));return`/submit?${t}`}export{se as default};