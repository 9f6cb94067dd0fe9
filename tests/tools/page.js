// The text of a report's page as a reader's browser makes it: runs the page's script over a document that can do what it asks for, no more.
// node tests/tools/page.js report.html [budget=0.25] [policy=snapkv] [sort=N]: with the form filled in; every table sorted by its Nth column, twice.
"use strict";
const html = require("fs").readFileSync(process.argv[2], "utf8"), wants = Object.fromEntries(process.argv.slice(3).map(a => a.split("=")));
const blocks = { table: 1, tr: 1, p: 1, h1: 1, h2: 1, h3: 1, figcaption: 1, summary: 1, caption: 1, svg: 1, form: 1, nav: 1 };
class Node {
  constructor(tag) { Object.assign(this, { tag, children: [], of: {}, on: {}, dataset: {}, style: {}, offsetWidth: 0 }); }
  setAttribute(k, v) { if (String(v).match(/NaN|undefined|Infinity/)) throw new Error(`<${this.tag} ${k}="${v}">`); this.of[k] = String(v); }
  removeAttribute(k) { delete this.of[k]; }
  addEventListener(k, f) { this.on[k] = f; }
  append(...list) { this.children.push(...list); }
  prepend(...list) { this.children.unshift(...list); }
  replaceChildren(...list) { this.children = list; }
  get tagName() { return this.tag; }
  get textContent() { return this.children.map(c => (typeof c === "string" ? c : c.textContent)).join(" "); }
  set textContent(t) { this.children = [String(t)]; }
  all(tag) { return this.children.flatMap(c => (typeof c === "string" ? [] : [...(c.tag === tag ? [c] : []), ...c.all(tag)])); }
  text() {
    const inside = this.children.map(c => (typeof c === "string" ? c : c.text())).join(this.tag === "tr" ? " | " : "");
    return blocks[this.tag] ? "\n" + inside + "\n" : inside;
  }
}
const parts = { header: new Node("header"), main: new Node("main"), body: new Node("body") };
const find = name => (name === "nav" ? parts.header.all("nav")[0] : name.includes("#") ? null : parts[name]);
const json = html.match(/<script type="application\/json" id="report">([\s\S]*?)<\/script>/)[1], script = html.match(/<script>([\s\S]*?)<\/script>/)[1];
const document = { createElement: t => new Node(t), createElementNS: (n, t) => new Node(t), getElementById: () => ({ textContent: json }), querySelector: find, addEventListener() {}, body: parts.body, documentElement: parts.body };
new Function("document", "innerWidth", script)(document, 1000);
for (const [name, value] of Object.entries(wants)) {
  const field = [...parts.header.all("select"), ...parts.header.all("input")].find(f => f.of.name === name);
  if (field) field.on.change({ target: { name, value } });
}
for (const head of wants.sort ? parts.main.all("thead") : []) for (let i = 0; i < 2; i++) (head.all("th")[wants.sort] || head.all("th")[0]).on.click();
for (const t of parts.main.all("td").concat(parts.main.all("text"))) if (/\bNaN\b|\[object|Infinity/.test(t.textContent)) throw new Error(`a cell says ${t.textContent}`);
console.log((parts.header.text() + parts.main.text()).replace(/\n{2,}/g, "\n"));
