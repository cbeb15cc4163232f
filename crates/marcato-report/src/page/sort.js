// Sorts a table by the column whose head is clicked; what has no value stays last.
for (const table of document.querySelectorAll("table.sort")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
      const key = (row) => {
        const cell = row.cells[at];
        return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
      };
      const none = (key) => key === "" || key === "\u2013";
      const order = (a, b) => {
        if (none(a) || none(b)) return none(a) - none(b);
        const numbers = typeof a === "number" && typeof b === "number";
        return sign * (numbers ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
      };
      body.append(...[...body.rows].sort((a, b) => order(key(a), key(b))));
    });
  });
}
// A link into a folded table opens it.
const open = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let up = target; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
};
addEventListener("hashchange", open);
open();
