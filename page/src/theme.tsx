// Light or dark: as the system says, unless the reader chooses.

import { useEffect, useState } from "preact/hooks";

type Theme = "light" | "dark";

const system = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

function useTheme(): [Theme, (theme: Theme) => void] {
  const [chosen, choose] = useState<Theme | null>(null);
  const [dark, setDark] = useState(system.matches);
  const theme = chosen ?? (dark ? "dark" : "light");
  root.dataset.theme = theme;
  useEffect(() => {
    const changed = () => setDark(system.matches);
    system.addEventListener("change", changed);
    return () => system.removeEventListener("change", changed);
  }, []);
  return [theme, choose];
}

export function ThemeButton() {
  const [theme, choose] = useTheme();
  const other = theme === "dark" ? "light" : "dark";
  return <button type="button" class="theme" onClick={() => choose(other)} aria-label={`Use the ${other} theme`}>{other}</button>;
}
