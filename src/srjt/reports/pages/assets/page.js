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
// Long tables: rows that contain a text, or one value of a column with few; further columns behind a switch.
const LONG = 20, FEW = 10;
for (const table of document.querySelectorAll("table.sortable")) {
  const rows = [...table.tBodies[0].rows];
  const headings = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const bar = document.createElement("div");
  const chosen = new Map();
  let wanted = "";
  bar.className = "filter";

  const shown = document.createElement("span");
  const update = () => {
    let count = 0;
    for (const row of rows) {
      const fits = [...chosen].every(([column, value]) => !value || row.cells[column].textContent.trim() === value);
      row.hidden = !fits || !row.textContent.toLowerCase().includes(wanted);
      count += row.hidden ? 0 : 1;
    }
    shown.textContent = count === rows.length ? "" : `${count} of ${rows.length} rows`;
  };

  if (rows.length > LONG) {
    const search = document.createElement("input");
    search.type = "search";
    search.placeholder = "filter rows";
    search.setAttribute("aria-label", "filter rows");
    search.addEventListener("input", () => { wanted = search.value.trim().toLowerCase(); update(); });
    bar.append(search);
    headings.forEach((heading, column) => {
      const values = [...new Set(rows.map((row) => row.cells[column].textContent.trim()))].sort();
      if (heading.classList.contains("number") || values.length < 2 || values.length > FEW) return;
      const select = document.createElement("select");
      const name = heading.textContent.trim();
      select.setAttribute("aria-label", name);
      select.append(new Option(`${name}: all`, ""), ...values.map((value) => new Option(`${name}: ${value}`, value)));
      select.addEventListener("change", () => { chosen.set(column, select.value); update(); });
      bar.append(select);
    });
  }
  if (table.querySelector(".extra")) {
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
// Say that a table goes on beyond the screen.
function mark() {
  for (const box of document.querySelectorAll(".scroll")) box.classList.toggle("cut", box.scrollWidth > box.clientWidth + 1);
}
mark();
addEventListener("resize", mark);
addEventListener("toggle", mark, true);
// Open all details before printing.
addEventListener("beforeprint", () => document.querySelectorAll("section details").forEach((d) => (d.open = true)));
