package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/spine/trace"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const root = "../.."

// TestWay shows that the recording in testdata has the packages of the way that the router takes
// now. Its calls are not compared: which worker takes a batch, for example, is a matter of time.
func TestWay(t *testing.T) {
	effort.AtLeast(t, effort.Full) // all packages of the router are compiled with records
	text, err := os.ReadFile(recordingOf(root))
	must.Succeed(t, err)
	recorded, err := read(bytes.NewReader(text))
	must.Succeed(t, err)
	path, err := filepath.Abs(root)
	must.Succeed(t, err)
	now, err := record(t.Context(), path, t.Output())
	must.Succeed(t, err)
	before, after := count(recorded, nil).packages, count(now, nil).packages
	for _, dir := range before {
		if !slices.Contains(after, dir) {
			t.Errorf("%s is not on the way any more", dir)
		}
	}
	for _, dir := range after {
		if !slices.Contains(before, dir) {
			t.Errorf("%s is new on the way", dir)
		}
	}
	if t.Failed() {
		t.Error("record the way again: go run ./test/spine -w")
	}
}

// TestRooms shows that each room of the architecture is on the way, or has packages at least.
func TestRooms(t *testing.T) {
	for _, room := range rooms {
		if _, err := os.Stat(root + "/" + room); err != nil {
			t.Errorf("there is no room %s", room)
		}
	}
}

func TestInstrument(t *testing.T) {
	const head, imported = "package p // p", `package p; import spinetrace "github.com/deltarouter/deltarouter/test/spine/trace" // p`
	for _, c := range []struct{ name, src, want string }{
		{"function", "func f() { g() }", "func f() { defer spinetrace.Enter(0)(); g() }"},
		{"method", "func (t *T[K]) m() {\n}", "func (t *T[K]) m() { defer spinetrace.Enter(0)();\n}"},
		{"lock", "func f() {\n\tx.mu.Lock()\n\tx.RLock()\n}", "func f() { defer spinetrace.Enter(0)();\n\tspinetrace.Lock(0); x.mu.Lock()\n\tspinetrace.Lock(1); x.RLock()\n}"},
		{"no statement", "func f() { defer x.Lock() }", "func f() { defer spinetrace.Enter(0)(); defer x.Lock() }"},
		{"literals", "var v = func() { h(func() {}) }", "var v = func() { defer spinetrace.Enter(0)(); h(func() { defer spinetrace.Enter(1)();}) }"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &sources{}
			got, err := s.instrument("pkg/p/p.go", []byte(head+"\n\n"+c.src+"\n"))
			must.Succeed(t, err)
			if want := imported + "\n\n" + c.want + "\n"; string(got) != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
	for _, src := range []string{"var x = 1", "func f()", "func init() { g() }", "//go:nosplit\nfunc f() { g() }"} {
		if got, err := new(sources).instrument("pkg/p/p.go", []byte(head+"\n\n"+src+"\n")); got != nil || err != nil {
			t.Errorf("%q became %q, %v", src, got, err)
		}
	}
}

// TestBuild shows which calls are the way, and their order.
func TestBuild(t *testing.T) {
	s := &sources{
		functions: []function{
			{dir: "internal/router", name: "run", file: "internal/router/run.go", begin: 1, end: 9},
			{dir: "internal/pipeline", name: "Tick"},
			{dir: "internal/pipeline", name: "Take"},
			{dir: "pkg/event", name: "Key"},
			{dir: "internal/pipeline", name: "scan"},
		},
		locks: []lock{{"internal/pipeline", "p.mu"}},
	}
	loop := []trace.Frame{{File: "runtime/proc.go", Line: 5}, {File: module + "/internal/router/run.go", Line: 5}}
	enter := func(g, id int, running ...trace.Frame) trace.Record {
		return trace.Record{Kind: trace.Entered, Goroutine: g, ID: id, Running: running}
	}
	leave := func(g, id int) trace.Record { return trace.Record{Kind: trace.Left, Goroutine: g, ID: id} }
	tick := []trace.Record{enter(1, 1, loop...), leave(1, 1)}
	w := &windows{idle: tick, delta: slices.Concat(tick, []trace.Record{
		enter(2, 2, loop...),
		{Kind: trace.Locking, Goroutine: 2},
		enter(2, 3), leave(2, 3), enter(2, 3), leave(2, 3), leave(2, 2),
		enter(1, 1, loop...), enter(1, 4), enter(1, 4), leave(1, 4), leave(1, 4),
	})}
	const want = `goroutine 1
~ internal/router run
  + internal/pipeline Take
    ! internal/pipeline p.mu
    + pkg/event Key ×2

goroutine 2
~ internal/router run
  + internal/pipeline Tick
    + internal/pipeline scan
`
	var got strings.Builder
	writeText(&got, build(s, w))
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
	again, err := read(strings.NewReader("figures\n\n" + want))
	must.Succeed(t, err)
	var text strings.Builder
	if writeText(&text, again); text.String() != want {
		t.Errorf("read as:\n%s", text.String())
	}
}

const way = `goroutine 1
~ internal/router run
  + internal/pipeline Take
    ! internal/pipeline p.mu ×2
    + pkg/event Key
      + internal/pipeline order.func1
    + internal/pipeline Send
  + pkg/plugins/webhook Write
goroutine 2
~ internal/router run
  + internal/pipeline Take
`

func TestFigures(t *testing.T) {
	trees, err := read(strings.NewReader(way))
	must.Succeed(t, err)
	f := count(trees, map[string]map[string]bool{"internal/pipeline": {"pkg/event": true}, "internal/router": {"internal/pipeline": true}})
	if got, want := strings.Join(f.stages, " "), "internal/router internal/pipeline pkg/plugins internal/router internal/pipeline"; got != want {
		t.Errorf("stages %q, want %q", got, want)
	}
	if got, want := strings.Join(f.packages, " "), "internal/router internal/pipeline pkg/event pkg/plugins/webhook"; got != want {
		t.Errorf("packages %q, want %q", got, want)
	}
	if got, want := strings.Join(f.reentries, ", "), "pkg/event Key → internal/pipeline order.func1"; got != want {
		t.Errorf("re-entries %q, want %q", got, want)
	}
	if f.functions != 6 || f.literals != 1 || f.loops != 1 || len(f.locks) != 2 || f.goroutines != 2 {
		t.Errorf("got %+v", f)
	}
}

func TestTable(t *testing.T) {
	trees, err := read(strings.NewReader(way))
	must.Succeed(t, err)
	docs := map[string]string{"internal/router run": "", "internal/pipeline Take": "takes a batch", "pkg/plugins/webhook Write": "writes"}
	got, err := table(rowsOf(trees), docs)
	must.Succeed(t, err)
	const want = "| goroutine | package | functions | effect of the first one |\n|---|---|---|---|\n" +
		"| 1 | `internal/router` | `run` | – |\n| 1 | `internal/pipeline` | `Take` | takes a batch |\n| 1 | `pkg/plugins/webhook` | `Write` | writes |\n"
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if _, err := table(rowsOf(trees), map[string]string{}); err == nil {
		t.Error("a function that does not exist is no mistake")
	}
	const before, after = "head\n" + tableBegins, tableEnds + "tail\n"
	if text, err := withTable(before+"old\n"+after, want); err != nil || text != before+"\n"+want+"\n"+after {
		t.Errorf("got %q, %v", text, err)
	}
	if _, err := withTable("head\n", want); err == nil {
		t.Error("a text without the lines of the table is no mistake")
	}
}

// TestTableIsCurrent shows that CONTRIBUTING.md has the table of the recording, whose functions
// exist.
func TestTableIsCurrent(t *testing.T) {
	recording, err := os.Open(recordingOf(root))
	must.Succeed(t, err)
	defer recording.Close()
	recorded, err := read(recording)
	must.Succeed(t, err)
	docs, err := sentences(root)
	must.Succeed(t, err)
	rows, err := table(rowsOf(recorded), docs)
	must.Succeed(t, err)
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	must.Succeed(t, err)
	now, err := withTable(string(text), rows)
	must.Succeed(t, err)
	if now != string(text) {
		t.Error("the table of CONTRIBUTING.md is out of date: run go run ./test/spine -table")
	}
}

// TestMistakes shows that other text is no recording.
func TestMistakes(t *testing.T) {
	for _, text := range []string{"goroutine 1\n+ x\n", "goroutine 1\n+ x y ×z\n", "goroutine 1\n    + x y\n"} {
		if _, err := read(strings.NewReader(text)); err == nil {
			t.Errorf("%q is no mistake", text)
		}
	}
}
