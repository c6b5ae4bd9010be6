<<<<<<< HEAD:services/web/assets/assets/asked-DBJtE3Wo.js
<<<<<<<< HEAD:services/web/assets/assets/asked-CpHU4-Dd.js
import{G as e,H as t,m as n}from"./index-9kTnRaAH.js";var r=5e3;function i(i,a){let[o,s]=e({}),[c,l]=e(0),u=`${c} ${i}`,d=()=>l(e=>e+1);return t(()=>{let e=!1;return a().then(t=>!e&&s({of:u,value:t}),t=>!e&&s(e=>({...e,of:u,error:t}))),()=>{e=!0}},[u]),t(()=>{if(!o.error||!n(o.error))return;let e=setTimeout(d,r);return()=>clearTimeout(e)},[o.error]),{value:o.value,error:o.error,isBusy:o.of!==u,again:d}}export{i as t};
========
import{G as e,H as t,m as n}from"./index-B4M0s4ZB.js";var r=5e3;function i(i,a){let[o,s]=e({}),[c,l]=e(0),u=`${c} ${i}`,d=()=>l(e=>e+1);return t(()=>{let e=!1;return a().then(t=>!e&&s({of:u,value:t}),t=>!e&&s(e=>({...e,of:u,error:t}))),()=>{e=!0}},[u]),t(()=>{if(!o.error||!n(o.error))return;let e=setTimeout(d,r);return()=>clearTimeout(e)},[o.error]),{value:o.value,error:o.error,isBusy:o.of!==u,again:d}}export{i as t};
>>>>>>>> 457f4d69 (Keep filters in two columns on a narrow screen):services/web/assets/assets/asked-DBJtE3Wo.js
=======
import{G as e,H as t,m as n}from"./index-DLmnoeXX.js";var r=5e3;function i(i,a){let[o,s]=e({}),[c,l]=e(0),u=`${c} ${i}`,d=()=>l(e=>e+1);return t(()=>{let e=!1;return a().then(t=>!e&&s({of:u,value:t}),t=>!e&&s(e=>({...e,of:u,error:t}))),()=>{e=!0}},[u]),t(()=>{if(!o.error||!n(o.error))return;let e=setTimeout(d,r);return()=>clearTimeout(e)},[o.error]),{value:o.value,error:o.error,isBusy:o.of!==u,again:d}}export{i as t};
>>>>>>> 94033ece (Name jobs in the tutorial and in stories of explanations):services/web/assets/assets/asked-DK3uSmyC.js
