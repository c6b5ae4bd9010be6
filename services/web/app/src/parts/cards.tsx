// A table that scrolls sideways where it is wide, and whose rows are cards on a narrow screen: each value below the title
// of its column. A cell of the class "wide" has a line of its own there.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

export function Cards({ children, isTall }: { children: ComponentChildren; isTall?: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const table = box.current!.querySelector("table");
    if (!table) return;
    const titles = [...table.querySelectorAll("thead th")].map((title) => title.textContent ?? "");
    // A cell that is a block is no cell to a screen reader, unless it says so.
    table.setAttribute("role", "table");
    for (const row of table.querySelectorAll("tr")) row.setAttribute("role", "row");
    for (const group of table.querySelectorAll("thead, tbody")) group.setAttribute("role", "rowgroup");
    for (const title of table.querySelectorAll("th")) title.setAttribute("role", "columnheader");
    for (const row of table.querySelectorAll<HTMLTableRowElement>("tbody tr")) {
      for (const [at, cell] of [...row.cells].entries()) {
        if (cell.dataset.title === titles[at]) continue; // thousands of them are drawn again each second
        cell.setAttribute("role", "cell");
        cell.dataset.title = titles[at] ?? "";
      }
    }
  });
  return <div class={`scroll cards ${isTall ? "tall" : ""}`} ref={box} tabIndex={0}>{children}</div>;
}
