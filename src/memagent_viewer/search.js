// Searching: after which chunks a text stands in the memory, and in which chunks it stands.

const find = {
    needle: "",
    pattern: null,

    set(text) {
        this.needle = fold(text).trim()
        const words = this.needle.split(" ").map((word) => word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"))
        this.pattern = this.needle ? new RegExp(words.join("[\\s\\u2060]+"), "giu") : null
    },

    isIn(entry) {
        if (!this.needle) return false
        entry.folded ??= fold(entry.text)
        return entry.folded.includes(this.needle)
    },
}

function fold(text) {
    return text.replace(/\u2060/g, "").replace(/\s+/g, " ").toLowerCase()
}

/** First and last of each row of consecutive places that were found. */
function spansOf(hits) {
    const spans = []
    hits.forEach((hit, place) => {
        if (!hit) return
        if (spans.at(-1)?.[1] === place - 1) spans.at(-1)[1] = place
        else spans.push([place, place])
    })
    return spans
}

const MOST_SPANS = 12

function tellFound(view) {
    const at = (place) => {
        const entry = view.entries[place]
        return button((entry.isEnd ? "answer" : entry.label) + (entry.place ? " (" + entry.place + ")" : ""), () => view.open(place, {focus: true}), {class: "link"})
    }
    const isReading = view.data.kind === "reading"
    const hits = view.hits.map((hit, place) => hit && !(isReading && view.entries[place].isEnd))
    const spans = spansOf(hits)
    const total = hits.filter(Boolean).length
    const parts = []
    if (!total) parts.push(isReading ? "Never in the memory." : "In no step.")
    else if (!isReading) {
        parts.push("In " + plural(total, "entry").replace(/entrys$/, "entries") + ": ")
        spans.slice(0, MOST_SPANS).forEach(([first, last], number) => parts.push(number ? ", " : "", at(first), first < last ? ["–", at(last)] : ""))
        parts.push(spans.length > MOST_SPANS ? " …" : ".")
    } else {
        parts.push("In the memory after " + plural(total, "chunk") + " of " + count(hits.length - 1) + ": ")
        spans.slice(0, MOST_SPANS).forEach(([first, last], number) => {
            const lasts = last >= hits.length - 2
            parts.push(number ? "; " : "", "appears with ", at(first), lasts ? ", stays to the end" : [", gone with ", at(last + 1)])
        })
        parts.push(spans.length > MOST_SPANS ? "; …" : ".")
    }
    return parts
}

/** Says in which chunks the text stands, as far as the page holds them; null when another search has begun. */
async function tellSources(view) {
    if (LIVE || view.data.kind !== "reading") return []
    const needle = find.needle
    const places = []
    let missing = 0
    for (const [place, entry] of view.entries.entries()) {
        if (!entry.textKey) continue
        const text = await readText(entry.textKey)
        if (find.needle !== needle) return null
        if (text === null) missing++
        else {
            entry.foldedSource ??= fold(text)
            if (entry.foldedSource.includes(needle)) places.push(place)
        }
    }
    const links = places.slice(0, 2 * MOST_SPANS).flatMap((place, number) => [number ? ", " : "", button(view.entries[place].label, () => view.open(place, {focus: true}), {class: "link"})])
    const rest = missing ? " (" + plural(missing, "chunk") + " not searched: their text is not in this page)" : ""
    return [" In the document: ", places.length ? [places.length === 1 ? "chunk " : "chunks ", links, places.length > 2 * MOST_SPANS ? ", …" : ""] : "not found", rest + "."]
}
