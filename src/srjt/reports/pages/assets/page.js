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
// Open all details before printing.
addEventListener("beforeprint", () => document.querySelectorAll("section details").forEach((d) => (d.open = true)));
