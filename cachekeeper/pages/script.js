"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));

  // A row and what opens below it stay together: such tables have a tbody for each.
  const items = (table) => (table.classList.contains("opens") ? Array.from(table.tBodies) : Array.from(table.tBodies[0].rows));
  const mainRow = (item) => (item.rows ? item.rows[0] : item);

  const valueOf = (item, column, isNumber) => {
    const cell = mainRow(item).cells[column];
    if (!isNumber) return cell.textContent.trim();
    const number = Number.parseFloat(cell.dataset.v);
    return Number.isNaN(number) ? null : number;
  };

  const order = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  const sort = (table, column, descending) => {
    const isNumber = table.tHead.rows[0].cells[column].dataset.sort === "number";
    const keyed = items(table).map((item) => [valueOf(item, column, isNumber), item]);
    const sign = descending ? -1 : 1;
    keyed.sort(([a], [b]) => {
      const emptyA = a === null || a === "", emptyB = b === null || b === "";
      if (emptyA || emptyB) return emptyA - emptyB;
      return sign * (isNumber ? a - b : order.compare(a, b));
    });
    const parent = keyed.length ? keyed[0][1].parentNode : table;
    parent.append(...keyed.map(([, item]) => item));
    all("th[data-sort]", table.tHead).forEach((head, at) => {
      if (at === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  };

  const sortable = (table) => {
    all("th[data-sort]", table.tHead).forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        // numbers are looked at from the largest on
        sort(table, column, before ? before === "ascending" : head.dataset.sort === "number");
      });
      head.append(button);
    });
  };

  const filterable = (tools) => {
    const table = document.getElementById(tools.dataset.for);
    const [input, select, output] = ["input", "select", "output"].map((name) => tools.querySelector(name));
    const rows = items(table).map((item) => [item, item.textContent.toLowerCase(), mainRow(item).dataset.effect || "none"]);
    const apply = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const effect = select ? select.value : "";
      let shown = 0;
      for (const [item, text, ofItem] of rows) {
        const fits = (!effect || effect === ofItem) && words.every((word) => text.includes(word));
        item.hidden = !fits;
        shown += fits;
      }
      output.value = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
    };
    input.addEventListener("input", apply);
    if (select) select.addEventListener("change", apply);
    tools.hidden = false;
    apply();
  };

  const openByRow = (table) => {
    table.addEventListener("click", (event) => {
      const row = event.target.closest("tbody > tr:not(.more)");
      if (!row || row.closest("table") !== table || String(window.getSelection())) return;
      const details = row.nextElementSibling && row.nextElementSibling.querySelector("details");
      if (details) details.open = !details.open;
    });
  };

  const themes = ["auto", "light", "dark"];
  const themed = () => {
    const button = document.getElementById("theme");
    const show = (theme) => {
      if (theme === "auto") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = theme;
      button.querySelector("span").textContent = theme;
    };
    let now = "auto";
    // a browser may refuse to remember anything for a file
    try { now = themes.includes(localStorage.getItem("cachekeeper-theme")) ? localStorage.getItem("cachekeeper-theme") : now; } catch { /* not remembered */ }
    show(now);
    button.hidden = false;
    button.addEventListener("click", () => {
      now = themes[(themes.indexOf(now) + 1) % themes.length];
      show(now);
      try { localStorage.setItem("cachekeeper-theme", now); } catch { /* not remembered */ }
    });
  };

  const followed = () => {
    const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
    const seen = new Set();
    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) seen[entry.isIntersecting ? "add" : "delete"](entry.target.id);
      let first = true;
      for (const [id, link] of links) {
        if (first && seen.has(id)) { link.setAttribute("aria-current", "true"); first = false; }
        else link.removeAttribute("aria-current");
      }
    }, { rootMargin: "-80px 0px -40% 0px" });
    all("main > section").forEach((section) => observer.observe(section));
  };

  themed();
  all("table.data").forEach(sortable);
  all("table.opens").forEach(openByRow);
  all(".tools").forEach(filterable);
  followed();
})();
