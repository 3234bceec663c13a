// Sort by a column when its heading is clicked: best first, then worst first, then the original order.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const headings = [...table.tHead.rows[table.tHead.rows.length - 1].cells];

  const compare = (column, direction) => (a, b) => {
    const [x, y] = [a.cells[column], b.cells[column]];
    const [p, q] = [x.dataset.sort, y.dataset.sort];
    if (p === undefined && q === undefined) return direction * x.textContent.localeCompare(y.textContent, undefined, { numeric: true });
    if (p === undefined || q === undefined) return p === undefined ? 1 : -1; // missing values last
    return direction * (Number(p) - Number(q));
  };

  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const first = heading.dataset.first || "ascending";
      const second = first === "ascending" ? "descending" : "ascending";
      const next = { none: first, [first]: second, [second]: "none" }[heading.getAttribute("aria-sort")];
      headings.forEach((other) => other.setAttribute("aria-sort", "none"));
      heading.setAttribute("aria-sort", next);
      table.classList.toggle("sorted", next !== "none");
      const rows = [...original];
      if (next !== "none") rows.sort(compare(column, next === "ascending" ? 1 : -1));
      body.append(...rows);
    });
  });
}
// Long tables and galleries: show what contains a text, or has one value of a column with few.
const LONG = 20, FEW = 10;
function filterBar(items, columns, what) {
  const bar = document.createElement("div");
  bar.className = "filter";
  const shown = document.createElement("span");
  const chosen = new Map();
  let wanted = "";
  const update = () => {
    let count = 0;
    for (const item of items) {
      const fits = [...chosen].every(([of, value]) => !value || of(item) === value);
      const text = [item.textContent, ...columns.map(({ of }) => of(item))].join(" ").toLowerCase();
      item.hidden = !fits || !text.includes(wanted);
      count += item.hidden ? 0 : 1;
    }
    shown.textContent = count === items.length ? "" : `${count} of ${items.length} ${what}`;
  };
  if (items.length > LONG) {
    const search = document.createElement("input");
    search.type = "search";
    search.placeholder = `filter ${what}`;
    search.setAttribute("aria-label", search.placeholder);
    search.addEventListener("input", () => { wanted = search.value.trim().toLowerCase(); update(); });
    bar.append(search);
    for (const { name, of, few } of columns) {
      const values = [...new Set(items.map(of))].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
      if (!few || values.length < 2 || values.length > FEW) continue;
      addSelect(bar, name, [["all", ""], ...values.map((value) => [value, value])], (value) => { chosen.set(of, value); update(); });
    }
  }
  return [bar, shown];
}
function addSelect(bar, name, options, change) {
  const select = document.createElement("select");
  select.setAttribute("aria-label", name);
  select.append(...options.map(([text, value]) => new Option(`${name}: ${text}`, value)));
  select.addEventListener("change", () => change(select.value));
  bar.append(select);
}
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const columns = headings.map((heading, column) => ({
    name: heading.textContent.trim(),
    of: (row) => row.cells[column].textContent.trim(),
    few: !heading.classList.contains("number"),
  }));
  const [bar, shown] = filterBar([...table.tBodies[0].rows], columns, "rows");
  if (table.querySelector(".extra")) { // further columns behind a switch
    const more = document.createElement("button");
    more.type = "button";
    const label = () => { more.textContent = table.classList.contains("less") ? "more columns" : "fewer columns"; };
    more.addEventListener("click", () => { table.classList.toggle("less"); label(); mark(); });
    table.classList.add("less");
    label();
    bar.append(more);
  }
  if (bar.children.length) {
    bar.append(shown);
    table.parentElement.before(bar);
  }
}
for (const gallery of document.querySelectorAll(".tiles")) {
  const tiles = [...gallery.children];
  const names = [...new Set(tiles.flatMap((tile) => Object.keys(tile.dataset)))];
  const columns = names.map((name) => ({ name, of: (tile) => tile.dataset[name] || "", few: true }));
  const [bar, shown] = filterBar(tiles, columns, "images");
  if (!bar.children.length) continue;
  const sort = (name) => {
    const by = (a, b) => (a.dataset[name] || "").localeCompare(b.dataset[name] || "", undefined, { numeric: true });
    gallery.append(...(name ? [...tiles].sort(by) : tiles));
  };
  if (names.length) addSelect(bar, "order", [["as listed", ""], ...names.map((name) => [`by ${name}`, name])], sort);
  bar.append(shown);
  gallery.before(bar);
}
// Say that a table goes on beyond the screen.
function mark() {
  for (const box of document.querySelectorAll(".scroll")) box.classList.toggle("cut", box.scrollWidth > box.clientWidth + 1);
}
mark();
addEventListener("resize", mark);
addEventListener("toggle", mark, true);
// Open all details before printing.
addEventListener("beforeprint", () => document.querySelectorAll("section details").forEach((d) => (d.open = true)));
