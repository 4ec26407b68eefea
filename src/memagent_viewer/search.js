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
    return text.replace(/\u2060/g, "").replace(/\s+/g, " ").toLowerCase().normalize("NFC")
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
    const hits = view.hits.map((hit, place) => hit && !(view.entries[place].isEnd && view.data.kind === "reading"))
    const total = hits.filter(Boolean).length
    const spans = spansOf(hits)
    const shown = spans.slice(0, MOST_SPANS)
    const more = spans.length > MOST_SPANS ? " …" : "."
    if (view.data.kind === "reading") {
        const {memory} = view.entries.at(-1)
        const again = memory !== undefined && (fold(memory).includes(find.needle) ? "in" : "not in")
        const after = again ? ` After chunks were read again it is ${again} the memory.` : ""
        if (!total) return [again ? "Not in the memory after any chunk." : "Never in the memory.", after]
        const end = view.isAnswered() && !again ? ", stays to the end" : ", still there"
        return [
            "In the memory after " + plural(total, "chunk") + " of " + count(hits.length - 1) + ": ",
            shown.map(([first, last], number) => [
                number ? "; appears with " : "appears with ",
                linkTo(view, first),
                last >= hits.length - 2 ? end : [", gone with ", linkTo(view, last + 1)],
            ]),
            more,
            after,
        ]
    }
    if (!total) return ["In no step."]
    const list = shown.map(([first, last], number) => [
        number ? ", " : "",
        linkTo(view, first),
        first < last ? ["–", linkTo(view, last)] : "",
    ])
    return ["In " + count(total) + (total === 1 ? " place: " : " places: "), list, more]
}

function linkTo(view, place) {
    const entry = view.entries[place]
    const label = entry.isEnd ? "answer" : entry.type && entry.type !== "step" ? entry.how || entry.type : entry.label
    return link(entry.place ? label + " (" + entry.place + ")" : label, () => view.open(place, {focus: true}))
}

/** Keys of the outputs that a session shows in part, with their entries. */
function listLongOutputs(view) {
    const calls = view.entries.flatMap((entry) => (entry.item?.calls ?? []).map((call) => [entry, call]))
    return calls.filter(([, call]) => call.more).map(([entry, call]) => [keyOf(call, view), entry])
}

/** Reads those outputs, so that the search finds what stands in the rest of them. */
async function readOutputs(view) {
    for (const [key, entry] of listLongOutputs(view)) {
        if ((await readText(key)) !== null) entry.folded = undefined // also if it was read for an earlier search
    }
}

/** Says in which chunks the text, or its end, stands, as far as the page holds them; null in another search. */
async function tellSources(view) {
    const parts = listLongOutputs(view).filter(([key]) => !texts.has(key)).length
    if (parts) return [" Of " + plural(parts, "output") + " only the beginning was searched: the rest is not in this page."]
    if (LIVE || view.data.kind !== "reading") return []
    const needle = find.needle
    const places = []
    let missing = 0
    let before = ""
    for (const [place, entry] of view.entries.entries()) {
        if (!entry.textKey) continue
        const text = await readText(entry.textKey)
        if (find.needle !== needle) return null
        if (text === null) missing++
        else entry.foldedSource ??= fold(text)
        const source = text === null ? "" : entry.foldedSource
        const cut = needle.length - 1
        const across = before.slice(Math.max(0, before.length - cut)) + source.slice(0, cut)
        if (source.includes(needle) || fold(across).includes(needle)) places.push(place)
        before = source
    }
    const list = places.slice(0, MOST_SPANS).map((place, number) => [number ? ", " : "", linkTo(view, place)])
    const rest = missing ? " (" + plural(missing, "chunk") + " not searched: their text is not in this page)" : ""
    const more = places.length > MOST_SPANS ? " …" : "."
    return [" In the document: ", places.length ? [places.length > 1 ? "chunks " : "chunk ", list] : "not found", rest, more]
}
