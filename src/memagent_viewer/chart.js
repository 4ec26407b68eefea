// Two rows of bars over the entries of a run: what the context carries, and what each entry cost.

const WIDEST = 3
const SVG = "http://www.w3.org/2000/svg"

function makeSvg(tag, attributes, ...children) {
    const element = document.createElementNS(SVG, tag)
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value)
    element.append(...children)
    return element
}

class Chart {
    constructor(entries, carried, open) {
        this.entries = entries
        this.rows = [
            this.makeRow(carried, entries.map((entry) => entry.tokens), open),
            this.makeRow("spent", entries.map((entry) => entry.spent), open),
        ]
        this.hits = makeSvg("path", {class: "hits"})
        const strip = makeSvg("svg", {viewBox: "0 0 " + entries.length + " 1", preserveAspectRatio: "none", "aria-hidden": "true"}, this.hits)
        this.element = make("div", {class: "chart"}, this.rows.map((row) => row.element), make("div", {class: "strip"}, strip))
        this.element.style.maxWidth = entries.length * WIDEST + "rem"
    }

    makeRow(name, values, open) {
        const most = Math.max(0, ...values)
        const bars = (wanted) =>
            values
                .map((value, place) => (wanted(this.entries[place]) && value ? bar(place, (100 * value) / most) : ""))
                .join("")
        const cursor = makeSvg("rect", {class: "cursor", y: 0, width: 1, height: 100})
        const svg = makeSvg(
            "svg",
            {viewBox: "0 0 " + values.length + " 100", preserveAspectRatio: "none", role: "img"},
            cursor,
            makeSvg("path", {class: "same", d: bars((entry) => !entry.changed)}),
            makeSvg("path", {class: "changed", d: bars((entry) => entry.changed)}),
        )
        svg.setAttribute("aria-label", name + ", by chunk or step; at most " + plural(most, "token"))
        svg.addEventListener("click", (event) => {
            const box = svg.getBoundingClientRect()
            open(Math.min(values.length - 1, Math.floor((values.length * (event.clientX - box.left)) / box.width)))
        })
        const total = name === "spent" ? plural(values.reduce((sum, value) => sum + value, 0), "token") + " in all" : "at most " + plural(most, "token")
        const caption = make("figcaption", {}, make("b", {}, name), " " + total)
        return {element: make("figure", {}, caption, svg), cursor}
    }

    point(place) {
        for (const row of this.rows) row.cursor.setAttribute("x", place)
    }

    markHits(found) {
        this.hits.setAttribute("d", found.map((hit, place) => (hit ? bar(place, 1, 1, 0) : "")).join(""))
    }
}

function bar(place, height, base = 100, gap = 0.12) {
    return "M" + (place + gap) + "," + base + "v" + -height.toFixed(2) + "h" + (1 - 2 * gap) + "v" + height.toFixed(2) + "z"
}
