// The page that the address names. Links are ordinary ones: a click on a link to this app changes the page without loading it.
import { computed, signal } from "@preact/signals";
import { PAGES, type Page } from "./pages/all";

export interface Found {
  page: Page;
  arguments: Record<string, string>;
}

export const address = signal(new URL(location.href));

export const found = computed<Found | null>(() => {
  for (const page of PAGES) {
    const given = match(page.path, address.value.pathname);
    if (given) return { page, arguments: given };
  }
  return null;
});

export function match(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/").filter(Boolean);
  const parts = path.split("/").filter(Boolean);
  const given: Record<string, string> = {};
  const takesRest = wanted.at(-1)?.endsWith("*") ?? false;
  if (takesRest ? parts.length < wanted.length : parts.length !== wanted.length) return null;
  for (const [index, part] of wanted.entries()) {
    const value = decoded(parts[index]!);
    if (part.endsWith("*")) given[part.slice(1, -1)] = parts.slice(index).map(decoded).join("/");
    else if (part.startsWith(":")) given[part.slice(1)] = value;
    else if (part !== value) return null;
  }
  return given;
}

// As it is when it is no encoding, such as "%zz".
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function go(to: string, replace = false): void {
  const url = new URL(to, location.href);
  history[replace ? "replaceState" : "pushState"](null, "", url);
  address.value = url;
}

// What a page keeps in its address, so that it can be shared: filters, sorting, the time range.
export function parameter(name: string): string {
  return address.value.searchParams.get(name) ?? "";
}

export function setParameters(values: Record<string, string>): void {
  const url = new URL(address.value);
  for (const [name, value] of Object.entries(values)) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  go(url.href, true);
}

// This page at another place of its table, which the parameter ``name`` says: an address to link to.
export function pageAt(name: string, token: string): string {
  const url = new URL(address.value);
  if (token) url.searchParams.set(name, token);
  else url.searchParams.delete(name);
  return url.pathname + url.search;
}

export function start(): void {
  addEventListener("popstate", () => (address.value = new URL(location.href)));
  document.addEventListener("click", (event) => {
    const link = (event.target as Element).closest?.("a[href]") as HTMLAnchorElement | null;
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || link.target || link.origin !== location.origin || link.hasAttribute("download")) return;
    if (link.pathname.startsWith("/api/") || link.pathname.startsWith("/schemas/")) return;
    event.preventDefault();
    if (link.href !== location.href) go(link.href);
  });
}
