// Light or dark: as the system says until the reader chooses.
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "peloton-theme";

export const theme = signal<Theme>((localStorage.getItem(KEY) as Theme | null) ?? "system");

export function applyTheme(): void {
  const root = document.documentElement;
  if (theme.value === "system") root.removeAttribute("data-theme");
  else root.dataset.theme = theme.value;
}

export function setTheme(chosen: Theme): void {
  theme.value = chosen;
  localStorage.setItem(KEY, chosen);
  applyTheme();
}

// For canvas: the value of a colour of styles.css as it is now, "--busy" for one.
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
