// Every page: pages.json names it, and src/pages/<name>.tsx has it as its default export.
import type { ComponentType } from "preact";
import table from "../../pages.json";

export interface Page {
  name: string;
  path: string; // ":id" stands for one part of the address, ":path*" for all that is left
  title: string;
  nav: boolean; // whether the header links to it
}

export type PageProps = { arguments: Record<string, string> };

export const PAGES: Page[] = table;

const modules = import.meta.glob<{ default: ComponentType<PageProps> }>("./*.tsx");

export async function load(page: Page): Promise<ComponentType<PageProps>> {
  const found = modules[`./${page.name}.tsx`];
  if (!found) throw new Error(`pages.json names ${page.name}, and there is no src/pages/${page.name}.tsx`);
  return (await found()).default;
}
