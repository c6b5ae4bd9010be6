<<<<<<< HEAD:services/web/assets/assets/typed-DGxcjuHK.js
<<<<<<<< HEAD:services/web/assets/assets/typed-DOhWhttH.js
import{G as e,y as t}from"./index-9kTnRaAH.js";function n({value:n,take:r,isWrong:i,...a}){let[o,s]=e(null);return t(`input`,{...a,value:o??n,"aria-invalid":i,spellcheck:!1,autocomplete:`off`,onInput:e=>s(e.currentTarget.value),onBlur:()=>s(null),onChange:e=>{s(null),r(e.currentTarget.value.trim())}})}export{n as t};
========
import{G as e,y as t}from"./index-B4M0s4ZB.js";function n({value:n,take:r,isWrong:i,...a}){let[o,s]=e(null);return t(`input`,{...a,value:o??n,"aria-invalid":i,spellcheck:!1,autocomplete:`off`,onInput:e=>s(e.currentTarget.value),onBlur:()=>s(null),onChange:e=>{s(null),r(e.currentTarget.value.trim())}})}export{n as t};
>>>>>>>> 457f4d69 (Keep filters in two columns on a narrow screen):services/web/assets/assets/typed-DGxcjuHK.js
=======
import{G as e,y as t}from"./index-DLmnoeXX.js";function n({value:n,take:r,isWrong:i,...a}){let[o,s]=e(null);return t(`input`,{...a,value:o??n,"aria-invalid":i,spellcheck:!1,autocomplete:`off`,onInput:e=>s(e.currentTarget.value),onBlur:()=>s(null),onChange:e=>{s(null),r(e.currentTarget.value.trim())}})}export{n as t};
>>>>>>> 94033ece (Name jobs in the tutorial and in stories of explanations):services/web/assets/assets/typed-DMWx4768.js
