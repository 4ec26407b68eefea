// One run: facts, answer, chart, the list of its entries, and the one that is open.

class RunView {
    constructor(data, number, page) {
        Object.assign(this, {data, number, page, question: 0, mode: "changes", onlyChanges: false, place: 0})
        const stands = data.kind === "reading" ? "changes" : "messages and compactions"
        this.only = make("input", {type: "checkbox", onchange: () => this.setOnly(this.only.checked)})
        this.charts = make("div")
        this.list = make("ol", {class: "entries", "aria-label": "chunks or steps"})
        this.detail = make("article", {class: "detail"})
        const only = make("label", {class: "only"}, this.only, ` only ${stands} `, make("kbd", {}, "c"))
        const body = [make("nav", {"aria-label": "chunks or steps"}, only, this.list), this.detail]
        const parts = [make("div"), this.charts, make("div", {class: "body"}, body)]
        this.element = make("section", {class: "run", "aria-label": "run " + data.id}, parts)
        this.load(data)
    }

    /** Shows a run's data, or news of it: whoever stands at the end stays there, and all else stays open. */
    load(data, {isNews = false} = {}) {
        const follows = isNews && this.place >= this.entries.length - 2
        this.data = data
        this.tokensBefore = 0
        const book = data.kind === "reading" ? data.books[this.question] : null
        this.entries = book ? readingEntries(data, book, this) : sessionEntries(data, this)
        this.task = book ? book.question : data.items.findLast((item) => item.type === "message").text
        if (follows) this.place = this.lastPlace()
        else if (!isNews) this.place = this.firstPlace()
        this.render({keep: isNews && !follows})
    }

    /** A run is best looked at where its memory first changed. */
    firstPlace() {
        const found = this.entries.findIndex((entry) => entry.changed || entry.type === "step")
        return LIVE ? this.lastPlace() : Math.max(0, found)
    }

    /** The answer, or what was done last while there is none to come. */
    lastPlace() {
        const waits = this.data.kind === "reading" && this.data.status === "running" && this.entries.length > 1
        return this.entries.length - (waits ? 2 : 1)
    }

    isAnswered() {
        return this.entries.at(-1).how === "answer"
    }

    render({keep}) {
        const [scrolled, focused] = [this.list.scrollTop, this.list.contains(document.activeElement)]
        const carried = this.data.kind === "reading" ? "memory" : "context"
        this.chart = new Chart(this.entries, carried, (place) => this.open(place))
        this.charts.replaceChildren(this.chart.element, makeTimeline(this.data.payments) ?? "")
        this.rows = this.entries.map((entry, place) => this.makeRow(entry, place))
        this.list.replaceChildren(...this.rows)
        patch(this.element.firstChild, this.makeHead())
        this.list.scrollTop = scrolled
        this.search()
        this.open(this.place, {quiet: true, focus: focused, keep})
    }

    makeHead() {
        const {status, facts, books} = this.data
        const latest = this.entries.slice(this.entries.findLastIndex((entry) => entry.type === "message") + 1)
        const answer = latest.findLast((entry) => entry.isEnd)
        const stopped = latest.findLast((entry) => entry.item?.stopped)
        const outcome = answer?.text || answer?.answer?.stopped || stopped?.item.text
        const badge = make("span", {class: "status " + status}, status)
        const several = books && books.length > 1
        const names = this.page.listDifferences()
        return make(
            "div",
            {class: "head"},
            make("p", {class: "name"}, make("b", {}, this.data.id), " ", badge),
            several ? this.makeQuestions(books) : null,
            said("h1", this.task, "task"),
            make(
                "div",
                {class: "outcome"},
                make("h2", {}, answer?.text ? "Answer" : "No answer"),
                said("p", outcome || "The run has not ended."),
            ),
            make(
                "details",
                {open: this.element.querySelector("details")?.open ?? false},
                make("summary", {}, "About the run", names.length ? ", which differs in " + names.join(", ") : ""),
                make("dl", {class: "facts"}, facts.map(([name, value]) => this.makeFact(name, value, names.includes(name)))),
            ),
        )
    }

    makeFact(name, value, differs) {
        const note = differs ? make("span", {class: "soft"}, " (differs)") : null
        const attributes = {class: differs ? "said differs" : "said", dir: "auto"}
        return [make("dt", {}, name), make("dd", attributes, showHidden(value), note)]
    }

    makeQuestions(books) {
        const options = books.map((book, value) =>
            make("option", {value, selected: value === this.question}, value + ": " + book.question.slice(0, 100)),
        )
        const choose = (event) => {
            this.question = Number(event.target.value)
            this.load(this.data)
            this.page.tell()
        }
        return make("label", {class: "questions"}, "Question ", make("select", {onchange: choose}, options))
    }

    makeRow(entry, place) {
        const tag = {"+": "ins", "-": "del", "=": "span"}[entry.gist?.[0] ?? "="]
        const gist = (entry.gist?.[1] ?? "").slice(0, 160)
        const kinds = ["entry", entry.type ?? "", entry.stands ? "changed" : "same", entry.left ? "left" : ""]
        return make(
            "li",
            {class: kinds.join(" ")},
            make(
                "button",
                {type: "button", tabindex: "-1", onclick: () => this.open(place)},
                make("span", {class: "label"}, entry.label),
                make(
                    "span",
                    {class: "gist", dir: "auto"},
                    entry.how ? make("i", {}, entry.how + " ") : null,
                    gist ? make(tag, {}, showHidden(gist)) : null,
                ),
                entry.warns ? make("span", {class: "warns", title: "has notes"}, "!") : null,
                entry.place ? make("span", {class: "place"}, showHidden(entry.place)) : null,
            ),
        )
    }

    open(place, {quiet = false, focus = false, keep = false} = {}) {
        if (!this.entries[place]) return
        this.rows[this.place]?.firstChild.setAttribute("tabindex", "-1")
        this.rows[this.place]?.firstChild.removeAttribute("aria-current")
        this.place = place
        const row = this.rows[place].firstChild
        row.setAttribute("tabindex", "0")
        row.setAttribute("aria-current", "true")
        const top = this.rows[place].offsetTop - this.list.offsetTop
        if (top < this.list.scrollTop || top + 60 > this.list.scrollTop + this.list.clientHeight) {
            this.list.scrollTop = Math.max(0, top - this.list.clientHeight / 3)
        }
        if (focus) row.focus({preventScroll: true})
        this.chart.point(place)
        if (!keep) this.detail.replaceChildren(...[this.entries[place].render()].flat(9).filter(Boolean))
        if (!quiet) this.page.opened(this)
    }

    openId(id) {
        this.open(this.entries.findIndex((entry) => entry.id === id), {focus: true})
    }

    /** Opens the next entry, or the one before, that `wanted` accepts. */
    move(by, wanted = (place) => !this.onlyChanges || !this.rows[place].classList.contains("same")) {
        for (let place = this.place + by; this.entries[place]; place += by) {
            if (wanted(place)) return this.open(place)
        }
    }

    moveToChange(by) {
        const searched = this.hits.some(Boolean)
        this.move(by, (place) => (searched ? this.hits[place] : this.entries[place].changed))
    }

    setMode(mode) {
        this.mode = mode
        this.open(this.place, {quiet: true})
        this.detail.querySelector('[aria-pressed="true"]')?.focus({preventScroll: true})
    }

    setOnly(only) {
        this.onlyChanges = this.only.checked = only
        this.list.classList.toggle("only-changes", only)
    }

    /** Marks the entries that hold what is searched for. */
    search() {
        this.hits = this.entries.map((entry) => find.isIn(entry))
        this.rows.forEach((row, place) => row.classList.toggle("hit", this.hits[place]))
        this.chart.markHits(this.hits)
    }
}
