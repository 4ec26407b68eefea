// A run that reads a document: an entry for each chunk, with the memory after it.

/** The entries of one question. */
function readingEntries(data, book, view) {
    const memories = rebuild(book.steps.map((step) => step.delta))
    const entries = book.steps.map((step, index) => new ChunkEntry(data, book.steps, index, memories, view))
    entries.push(new AnswerEntry(book.answer))
    return entries
}

class ChunkEntry {
    constructor(data, steps, index, memories, view) {
        this.step = steps[index]
        this.steps = steps
        this.data = data
        this.view = view
        this.parts = memories[index]
        this.before = index ? memories[index - 1] : []
        this.id = "chunk-" + this.step.chunk
        this.label = String(this.step.chunk)
        this.chunk = data.chunks[this.step.chunk]
        this.place = this.chunk[3]
        this.end = this.chunk[1]
        this.changed = this.stands = this.step.how === "updated"
        this.gist = this.changed ? gistOf(textOf(this.before), this.step.delta) : null
        this.how = {updated: "", kept: "kept", unchanged: "rewritten unchanged", waiting: "no reply"}[this.step.how]
        this.notes = [this.chunk[4], ...this.step.notes].filter(Boolean)
        this.warns = this.notes.length > 0
        this.tokens = this.step.tokens ?? (index ? view.tokensBefore : 0)
        view.tokensBefore = this.tokens
        this.spent = this.step.cost[1] + this.step.cost[2]
    }

    get text() {
        return textOf(this.parts)
    }

    get textKey() {
        return this.view.number + "/chunk-" + this.step.chunk
    }

    render() {
        const [start, end, tokens, place] = this.chunk
        const where = [place, "characters " + count(start) + " to " + count(end), plural(tokens, "token")]
        const chunks = this.view.isAnswered() ? count(this.data.chunks.length) : count(this.steps.length) + " read"
        const modes = {changes: "Changes", origins: "Where from"}
        const size = this.tokens ? make("small", {}, " " + plural(this.tokens, "token")) : null
        return [
            make("h3", {}, "Chunk " + this.step.chunk, make("small", {}, " of " + chunks)),
            said("p", where.filter(Boolean).join(" · "), "soft"),
            tellCost(this.step.cost),
            tellNotes(this.notes),
            make(
                "div",
                {class: "panes"},
                make(
                    "section",
                    {},
                    make(
                        "div",
                        {class: "title"},
                        make("h4", {}, "Memory after it", size),
                        make(
                            "span",
                            {class: "modes", role: "group", "aria-label": "What to show of the memory"},
                            Object.entries(modes).map(([mode, label]) =>
                                button(label, () => this.view.setMode(mode), {
                                    "aria-pressed": String(this.view.mode === mode),
                                }),
                            ),
                        ),
                    ),
                    this.renderMemory(),
                ),
                make("section", {}, make("div", {class: "title"}, make("h4", {}, "The chunk")), this.renderText()),
            ),
        ]
    }

    renderMemory() {
        const box = make("div", {class: "said text", dir: "auto"})
        if (!this.parts.length && !this.before.length) box.append(make("em", {class: "soft"}, "empty"))
        else if (this.view.mode === "origins") box.append(...this.parts.flatMap((part) => this.renderPart(part)))
        else if (this.changed) box.append(...showChanges(textOf(this.before), this.step.delta))
        else box.append(...show(this.text))
        return box
    }

    renderPart(part) {
        const step = this.steps[part.born]
        const place = this.data.chunks[step.chunk][3]
        const title = "from chunk " + step.chunk + (place ? ", " + place : "")
        const tag = button(String(step.chunk), () => this.view.openId("chunk-" + step.chunk), {
            class: "tag",
            title,
            "aria-label": title,
        })
        const isNew = step === this.step
        return part.text.trim().length < 8
            ? show(part.text)
            : [make("span", {class: isNew ? "part new" : "part"}, show(part.text)), tag]
    }

    tellMissing() {
        const {id, store} = this.view.data
        const command = "memagent show " + id + " --chunk " + this.step.chunk + store
        const why = "Not in this page, which would be too large with it: "
        return [make("em", {class: "soft"}, why), make("code", {}, command)]
    }

    renderText() {
        const box = makeSource("text of the chunk")
        readText(this.textKey).then((text) => {
            if (text !== null) fillSource(box, text)
            else box.append(...this.tellMissing())
        })
        return box
    }
}

class AnswerEntry {
    constructor(answer) {
        this.answer = answer
        this.id = "answer"
        this.label = answer.text === null ? "–" : "✓"
        this.changed = false
        this.stands = true
        this.how = answer.text === null ? "no answer" : "answer"
        this.gist = answer.text === null ? null : ["=", answer.text]
        this.warns = answer.notes.length > 0 || answer.text === null
        this.end = Infinity
        this.tokens = 0
        this.spent = answer.cost[1] + answer.cost[2]
        this.text = answer.text ?? ""
        this.memory = answer.memory // after chunks were read again
        this.isEnd = true
    }

    render() {
        return [
            make("h3", {}, "Answer"),
            tellCost(this.answer.cost),
            tellNotes(this.answer.notes),
            said("div", this.answer.text ?? this.answer.stopped ?? "No answer yet.", "text"),
            this.memory ? [make("h4", {}, "Memory after chunks were read again"), said("div", this.memory, "text")] : null,
        ]
    }
}
