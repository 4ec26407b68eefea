// Two rows of bars over the entries of a run: what the context carries, and what each entry cost.

const WIDEST = 4
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
        const strip = makeSvg("svg", {...fit(entries.length, 1), "aria-hidden": "true"}, this.hits)
        const rows = this.rows.map((row) => row.element)
        this.element = make("div", {class: "chart"}, rows, make("div", {class: "strip"}, strip))
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
            {...fit(values.length, 100), role: "img"},
            cursor,
            makeSvg("path", {class: "same", d: bars((entry) => !entry.changed)}),
            makeSvg("path", {class: "changed", d: bars((entry) => entry.changed)}),
        )
        svg.setAttribute("aria-label", name + ", by chunk or step; at most " + plural(most, "token"))
        svg.addEventListener("click", (event) => {
            const box = svg.getBoundingClientRect()
            open(Math.min(values.length - 1, Math.floor((values.length * (event.clientX - box.left)) / box.width)))
        })
        const sum = values.reduce((total, value) => total + value, 0)
        const size = name === "spent" ? plural(sum, "token") + " in all" : "at most " + plural(most, "token")
        const caption = make("figcaption", {}, make("b", {}, name), " " + size)
        return {element: make("figure", {}, caption, svg), cursor}
    }

    point(place) {
        for (const row of this.rows) row.cursor.setAttribute("x", place)
    }

    markHits(found) {
        this.hits.setAttribute("d", found.map((hit, place) => (hit ? bar(place, 1, 1, 0) : "")).join(""))
    }
}

function fit(width, height) {
    return {viewBox: "0 0 " + width + " " + height, preserveAspectRatio: "none"}
}

function bar(place, height, base = 100, gap = 0.12) {
    const tall = height.toFixed(2)
    return `M${place + gap},${base}v-${tall}h${1 - 2 * gap}v${tall}z`
}
