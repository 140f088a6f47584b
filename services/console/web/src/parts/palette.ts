// Colours that pictures share; each is at least 3 to 1 against its page.

export const LIGHT = ["#1864ab", "#b4460a", "#2b7a3d", "#862e9c", "#a61e4d", "#0b7285"];
export const DARK = ["#74c0fc", "#ffa94d", "#8ce99a", "#e599f7", "#faa2c1", "#66d9e8"];

export interface Looks {
  colours: string[];
  ink: string;
  grid: string;
  quiet: string;
}

export const looks = (dark: boolean): Looks => ({
  colours: dark ? DARK : LIGHT,
  ink: dark ? "#c9c9c9" : "#495057",
  grid: dark ? "rgb(255 255 255 / 10%)" : "rgb(0 0 0 / 8%)",
  quiet: dark ? "#8a939c55" : "#5c677355",
});

export const axis = ({ ink, grid }: Looks) => ({
  stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui", labelFont: "12px system-ui",
});
