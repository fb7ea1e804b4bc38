"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;

  // The table: all rows in memory, a page of them in the document.
  const PAGE = 50;
  const CONDITION = /^(.+?)(<=|>=|!=|=|<|>)(.*)$/;
  // Quotes keep blanks in a name or a value together.
  const WORD = /(?:"[^"]*"?|[^\s"])+/g;
  const bare = (word) => word.replaceAll('"', "");
  const table = JSON.parse(byId("table-data").textContent);
  const columns = table.head.columns;
  const names = columns.map((column) => column.name.toLowerCase());
  const count = new Intl.NumberFormat("en");
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const lowered = new Array(table.rows.length);
  let order = table.rows.map((_, at) => at);
  let sorted = { column: 0, descending: false };
  let first = 0;
  let shown = order;

  const wordOf = (value) => {
    if (value === null) return "";
    return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(6))) : String(value);
  };
  const lineOf = (at) => lowered[at] ?? (lowered[at] = table.rows[at].map(wordOf).join(" ").toLowerCase());

  const compare = (one, other, descending) => {
    // What has no value comes last, whichever way the others are sorted.
    const missing = (one === null || one === "") - (other === null || other === "");
    if (missing || one === null || one === "") return missing;
    const numbers = (typeof other === "number") - (typeof one === "number");
    if (numbers) return numbers;
    const way = typeof one === "number" ? one - other : collator.compare(one, other);
    return descending ? -way : way;
  };

  const columnNamed = (name) => {
    const exact = names.indexOf(name);
    return exact >= 0 ? exact : names.findIndex((each) => each.endsWith("." + name));
  };

  const conditionOf = (word) => {
    const found = CONDITION.exec(word);
    const column = found ? columnNamed(bare(found[1])) : -1;
    if (column < 0) return (at) => lineOf(at).includes(bare(word));
    const operator = found[2];
    const text = bare(found[3]);
    const number = text === "" ? NaN : Number(text);
    return (at) => {
      const value = table.rows[at][column];
      if (value === null) return operator === "!=";
      const both = typeof value === "number" && !Number.isNaN(number);
      const way = both ? value - number : collator.compare(wordOf(value), text);
      // A number and a word have no order.
      const ordered = both || (typeof value !== "number" && Number.isNaN(number));
      const is = both ? way === 0 : wordOf(value).toLowerCase() === text;
      switch (operator) {
        case "=": return is;
        case "!=": return !is;
        case "<": return ordered && way < 0;
        case ">": return ordered && way > 0;
        case "<=": return ordered && way <= 0;
        default: return ordered && way >= 0;
      }
    };
  };

  const filter = () => {
    const words = (byId("filter").value.toLowerCase().match(WORD) ?? []).map(conditionOf);
    shown = words.length ? order.filter((at) => words.every((holds) => holds(at))) : order;
    first = 0;
    draw();
  };

  const sort = (column) => {
    const descending = sorted.column === column && !sorted.descending;
    sorted = { column, descending };
    const at = (row) => table.rows[row][column];
    order = order.slice().sort((one, other) => compare(at(one), at(other), descending) || one - other);
    filter();
  };

  const cell = (row, column, value) => {
    const made = row.appendChild(document.createElement(column === 0 ? "th" : "td"));
    if (column === 0) made.scope = "row";
    if (columns[column].number) made.className = "number";
    const text = wordOf(value);
    made.textContent = column === 0 && text === "" ? "\u2013" : text;
    if (text.length > 30) made.title = text;
  };

  const draw = () => {
    const body = document.createElement("tbody");
    for (const at of shown.slice(first, first + PAGE)) {
      const row = body.insertRow();
      if (table.rows[at][0] === 1) row.className = "first";
      table.rows[at].forEach((value, column) => cell(row, column, value));
    }
    byId("ranked").tBodies[0].replaceWith(body);
    byId("ranked").querySelectorAll("thead th").forEach((head, column) => {
      const way = sorted.descending ? "descending" : "ascending";
      head.setAttribute("aria-sort", column === sorted.column ? way : "none");
    });
    const last = Math.min(first + PAGE, shown.length);
    const which = shown.length ? `Rows ${count.format(first + 1)} to ${count.format(last)} of ` : "";
    const all = shown.length < order.length ? `, out of ${count.format(order.length)}` : "";
    const way = sorted.descending ? "descending" : "ascending";
    byId("table-status").textContent =
      `${which}${count.format(shown.length)}${all}, by ${columns[sorted.column].name}, ${way}.`;
    byId("previous").disabled = first === 0;
    byId("next").disabled = last >= shown.length;
  };

  const turn = (by) => {
    first = Math.max(0, first + by * PAGE);
    draw();
  };

  const startTable = () => {
    const heads = byId("ranked").tHead.insertRow();
    columns.forEach((column, at) => {
      const head = heads.appendChild(document.createElement("th"));
      head.scope = "col";
      if (column.number) head.className = "number";
      const button = head.appendChild(document.createElement("button"));
      button.type = "button";
      button.textContent = column.name;
      button.addEventListener("click", () => sort(at));
    });
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    byId("filter").addEventListener("input", filter);
    byId("previous").addEventListener("click", () => turn(-1));
    byId("next").addEventListener("click", () => turn(1));
    byId("table-note").textContent = table.head.note;
    draw();
    root.dataset.ready = "table";
  };

  // The plots: each drawn when it comes near the window, in the colours of the page.
  const CONFIG = { displaylogo: false, responsive: true, showSendToCloud: false, showEditInChartStudio: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  const drawn = new Set();
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");

  const isDark = () => {
    const set = root.dataset.theme;
    return set ? set === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
  };

  const themed = (layout) => {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(name).trim();
    const made = JSON.parse(JSON.stringify(layout));
    made.paper_bgcolor = made.plot_bgcolor = "rgba(0,0,0,0)";
    made.font = { color: colour("--text"), family: getComputedStyle(document.body).fontFamily, size: 12 };
    made.hoverlabel = { ...made.hoverlabel, bgcolor: colour("--panel"), bordercolor: colour("--line"),
      font: { color: colour("--text"), size: 12 } };
    made.modebar = { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--accent") };
    if (still.matches) made.transition = { duration: 0 };
    for (const key of Object.keys(made)) {
      if (/^[xy]axis\d*$/.test(key)) {
        made[key] = { gridcolor: colour("--line"), linecolor: colour("--line"), tickcolor: colour("--line"), ...made[key] };
      }
    }
    return made;
  };

  const startLibrary = () => {
    if (window.Plotly) return;
    const script = document.createElement("script");
    script.textContent = byId("library").textContent;
    document.head.append(script);
  };

  const drawPlot = (plot) => {
    startLibrary();
    const figure = JSON.parse(byId(plot.dataset.figure).textContent);
    drawn.add(plot);
    return Plotly.react(plot, figure.data, themed(figure.layout), CONFIG);
  };

  const startPlots = () => {
    const plots = document.querySelectorAll(".plot");
    window.addEventListener("beforeprint", () => plots.forEach((plot) => drawn.has(plot) || drawPlot(plot)));
    const near = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) {
          near.unobserve(entry.target);
          drawPlot(entry.target);
        }
      }
    }, { rootMargin: "400px" });
    plots.forEach((plot) => near.observe(plot));
    root.dataset.ready = "plots";
  };

  const paint = () => {
    byId("theme").setAttribute("aria-pressed", String(isDark()));
    drawn.forEach(drawPlot);
  };

  byId("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    paint();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  paint();
  startTable();
  startPlots();
})();
