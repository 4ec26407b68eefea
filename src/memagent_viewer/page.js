// The page: its runs, the search box, the keys.

const page = {
    runs: [],
    active: null,

    start(found) {
        document.body.classList.toggle("two", found.length === 2)
        this.data = found
        found.forEach((data, number) => this.runs.push(new RunView(data, number, this)))
        this.active = this.runs[0]
        document.getElementById("runs").append(...this.runs.map((run) => run.element))
        for (const run of this.runs) run.element.addEventListener("focusin", () => (this.active = run))
        const id = location.hash.slice(1)
        if (this.active.entries.some((entry) => entry.id === id)) this.active.openId(id)
        document.documentElement.dataset.ready = Math.round(performance.now())
    },

    update(found) {
        this.data = found
        found.forEach((data, number) => this.runs[number].load(data, {isNews: true}))
        this.tell()
    },

    /** Names of the facts in which two runs differ; one that only one of them has is among them. */
    listDifferences() {
        if (this.data.length < 2) return []
        const [facts, others] = this.data.map((data) => new Map(data.facts))
        const names = new Set([...facts.keys(), ...others.keys()])
        return [...names].filter((name) => !["run", "when"].includes(name) && facts.get(name) !== others.get(name))
    },

    /** Keeps the address up to date, and the other run at the same position of its document. */
    opened(run) {
        this.active = run
        const entry = run.entries[run.place]
        if (entry.id && !LIVE) history.replaceState(null, "", "#" + entry.id)
        for (const other of this.runs) {
            if (other === run) continue
            const same = entry.end === undefined ? run.place : other.entries.findIndex((each) => each.end >= entry.end)
            other.open(Math.min(same < 0 ? Infinity : same, other.entries.length - 1), {quiet: true})
        }
    },

    async search(text) {
        find.set(text)
        await this.tell()
        for (const run of this.runs) run.open(run.place, {quiet: true})
    },

    /** Marks what is found, and says where. Tools' outputs are read first: they are searched as a whole. */
    async tell() {
        const needle = find.needle
        if (needle) await Promise.all(this.runs.map(readOutputs))
        if (find.needle !== needle) return
        const box = document.getElementById("found")
        box.replaceChildren()
        for (const run of this.runs) run.search()
        if (!needle) return
        for (const run of this.runs) {
            const line = make("p", {}, this.runs.length > 1 ? make("b", {}, run.data.id + ": ") : null, tellFound(run))
            box.append(line)
            tellSources(run).then((parts) => parts && line.append(...parts.flat(9)))
        }
    },
}

const input = document.getElementById("find")
const help = document.getElementById("help")
let typed = 0

input.addEventListener("input", () => {
    clearTimeout(typed)
    typed = setTimeout(() => page.search(input.value), 150)
})
document.getElementById("search").addEventListener("submit", (event) => {
    event.preventDefault()
    page.search(input.value).then(() => page.active.moveToChange(1))
})
document.getElementById("keys").addEventListener("click", () => help.showModal())

function startSearch() {
    const selected = String(getSelection()).trim()
    if (selected) input.value = selected
    input.focus()
    input.select()
    if (selected) page.search(selected)
}

const KEYS = {
    j: () => page.active.move(1),
    k: () => page.active.move(-1),
    n: () => page.active.moveToChange(1),
    p: () => page.active.moveToChange(-1),
    g: () => page.active.open(0),
    G: () => page.active.open(page.active.entries.length - 1),
    o: () => page.active.setMode(page.active.mode === "changes" ? "origins" : "changes"),
    c: () => page.active.setOnly(!page.active.onlyChanges),
    "/": startSearch,
    "?": () => help.showModal(),
}

document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input[type=search], select")
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return
    if (event.key === "Escape" && find.needle) {
        input.value = ""
        input.blur()
        page.search("")
    } else if (!typing && event.target.closest(".entries") && ["ArrowDown", "ArrowUp"].includes(event.key)) {
        event.preventDefault()
        page.active.move(event.key === "ArrowDown" ? 1 : -1)
        page.active.rows[page.active.place].firstChild.focus({preventScroll: true})
    } else if (!typing && Object.hasOwn(KEYS, event.key)) {
        event.preventDefault()
        KEYS[event.key]()
    }
})

readRuns().then((found) => {
    page.start(found)
    if (LIVE) follow((news) => page.update(news), () => document.body.classList.add("gone"))
})
