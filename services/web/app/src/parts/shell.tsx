// What is round every page: links, search, theme, and whether what is shown is live.
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { load, type PageProps, PAGES } from "../pages/all";
import { address, found } from "../router";
import { settings } from "../settings";
import { setTheme, theme, type Theme } from "../theme";
import { useTitle } from "../title";
import { FreshnessMark } from "./freshness";
import { Problem } from "./problem";
import { openSearch, Search } from "./search";

export function Shell() {
  const here = found.value;
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [address.value.pathname]);
  return (
    <>
      <a class="skip" href="#content">To the content</a>
      <header class={`top ${isOpen ? "open" : ""}`}>
        <a class="brand" href="/">Peloton</a>
        <nav aria-label="Pages" id="pages">
          {PAGES.filter((page) => page.nav).map((page) => (
            <a key={page.name} href={page.path} aria-current={isBelow(page.path) ? "page" : undefined}>{page.title}</a>
          ))}
        </nav>
        <span class="tools">
          <FreshnessMark />
          <button type="button" onClick={openSearch} title="Search (key /)">Search <kbd>/</kbd></button>
          <button type="button" class="menu" aria-expanded={isOpen} aria-controls="pages" onClick={() => setOpen(!isOpen)}>Menu</button>
          {settings.value.isSignedIn && (
            <form method="post" action="/sign-out">
              <button title={`You are ${settings.value.viewer}`}>Sign out</button>
            </form>
          )}
          <label class="theme">
            <span class="hidden">Theme</span>
            <select value={theme.value} onChange={(event) => setTheme(event.currentTarget.value as Theme)}>
              <option value="system">As the system</option>
              <option value="light">Light</option>
              <option value="dark">Dark</option>
            </select>
          </label>
        </span>
      </header>
      <main id="content" tabIndex={-1}>{here ? <Shown key={address.value.pathname} /> : <Missing />}</main>
      <Search />
    </>
  );
}

function isBelow(path: string): boolean {
  const here = address.value.pathname;
  return path === "/" ? here === "/" : here === path || here.startsWith(`${path}/`);
}

function Shown() {
  const { page, arguments: given } = found.value!;
  const [loaded, setLoaded] = useState<{ Component: ComponentType<PageProps> } | null>(null);
  const [failure, setFailure] = useState("");
  useEffect(() => {
    document.title = page.name === "overview" ? "Peloton" : `${Object.values(given).join(" ")} ${page.title} · Peloton`.trim();
    load(page).then(
      (Component) => setLoaded({ Component }),
      (error: Error) => setFailure(error.message),
    );
  }, [page]);
  if (failure) {
    return (
      <>
        <Problem title="This page could not be loaded" text={failure} />
        <p><button type="button" onClick={() => location.reload()}>Load it again</button></p>
      </>
    );
  }
  return loaded ? <loaded.Component arguments={given} /> : <p class="quiet" aria-busy="true">Loading</p>;
}

function Missing() {
  useTitle("No such page");
  return (
    <>
      <h1>There is no such page</h1>
      <p>{address.value.pathname}</p>
      <p><a href="/">Overview</a>, or search with <kbd>/</kbd></p>
    </>
  );
}
