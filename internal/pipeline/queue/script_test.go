package queue_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/leaks"
)

var update = flag.Bool("update", false, "write the output of the scripts into testdata")

func TestMain(m *testing.M) { leaks.Main(m) }

// TestScripts runs testdata/*.txtar: the file script has one command a line, the file output their
// output. A delta is written as name@resourceVersion. The commands:
//
//	window quiet=5s max=20s | window group=5s size=3 [joint]
//	add OP NAME@V [key=KEY] [tail]  makes a delta pending, with its lane unless it goes to the tail
//	take N                          prints a batch
//	done NAME@V | retry NAME@V 5s   the result of an entry of the batches; its lane is given back when all of it have one
//	coalesce NAME@V | promote | wait 5s | show
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &script{t: t, now: time.Unix(1000, 0), entries: map[string]*queue.Entry{}}
			for line := range strings.Lines(string(archive.Files[0].Data)) {
				if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "#" {
					s.run(fields)
				}
			}
			if *update {
				archive.Files[1].Data = []byte(s.out.String())
				if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if want := string(archive.Files[1].Data); s.out.String() != want {
				t.Errorf("got\n%s\nwant\n%s", s.out.String(), want)
			}
		})
	}
}

type script struct {
	t       *testing.T
	q       queue.Queue
	now     time.Time
	out     strings.Builder
	entries map[string]*queue.Entry // by name@version
	taken   []*queue.Entry          // without a result
	retried map[*queue.Lane]time.Time
}

func (s *script) run(f []string) {
	s.t.Helper()
	switch f[0] {
	case "window":
		s.q.Configure(s.window(f[1:]), true)
	case "add":
		s.add(f[1:])
	case "take":
		n := s.number(f[1])
		s.q.Lanes.Wake(s.now)
		batch := s.q.Take(n, nil, nil)
		s.taken = append(s.taken, batch...)
		fmt.Fprintln(&s.out, "take", n, "->", names(batch))
	case "done", "retry":
		s.end(f)
	case "coalesce":
		gone, _ := s.q.Coalesce(s.entries[f[1]])
		fmt.Fprintln(&s.out, "coalesce", f[1], "-> gone", gone)
	case "promote":
		s.q.Promote(queue.Bound{Entries: 1000, Bytes: 1 << 30})
		for e := s.q.Head.NextUnplaced(); e != nil; e = s.q.Head.NextUnplaced() {
			s.q.Place(e, e.Object(), s.now)
		}
	case "wait":
		s.now = s.now.Add(s.duration(f[1]))
	case "show":
		fmt.Fprintf(&s.out, "pending %d, ready %d, debouncing %d, in the tail %d\n", s.q.Len(), s.q.Lanes.Ready(), s.q.Lanes.Debouncing(), s.q.Tail.Spilled())
	default:
		s.t.Fatalf("no command %q", f)
	}
}

func (s *script) window(f []string) (w queue.Window) {
	for _, option := range f {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "quiet":
			w.Quiet = s.duration(value)
		case "max":
			w.Max = s.duration(value)
		case "group":
			w.Grouped, w.Wait = true, s.duration(value)
		case "size":
			w.Size = s.number(value)
		case "joint":
			w.Joint = true
		}
	}
	return w
}

func (s *script) add(f []string) {
	name, version, _ := strings.Cut(f[1], "@")
	text := fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q,"resourceVersion":%q}}`, name, "u-"+name, version)
	o, err := event.ParseObject(&event.Resource{}, text)
	if err != nil {
		s.t.Fatal(err)
	}
	d := &event.Delta{Source: "s", New: o, Seen: s.now}
	op, ok := event.ParseOp(f[0])
	if !ok {
		s.t.Fatalf("no op %q", f[0])
	}
	d.Op = op
	switch d.Op {
	case event.Updated:
		d.Old = o
	case event.Deleted, event.Deselected:
		d.Old, d.New = o, nil
	case event.Added, event.Sync, event.Entered, event.Left:
	}
	tail := slices.Contains(f, "tail")
	e := s.q.Add(queue.Item{Delta: d, From: queue.Live, Tail: tail})
	s.entries[f[1]] = e
	if tail {
		return
	}
	key := e.Object()
	for _, option := range f[2:] {
		if k, ok := strings.CutPrefix(option, "key="); ok {
			key = queue.Key{Name: k}
		}
	}
	s.q.Place(e, key, s.now)
}

func (s *script) end(f []string) {
	e := s.entries[f[1]]
	i := slices.Index(s.taken, e)
	if i < 0 {
		s.t.Fatalf("%s is not taken", f[1])
	}
	s.taken = slices.Delete(s.taken, i, i+1)
	lane := e.Lane()
	e.Return()
	if s.retried == nil {
		s.retried = map[*queue.Lane]time.Time{}
	}
	if f[0] == "done" {
		s.q.Remove(e)
	} else if _, ok := s.retried[lane]; !ok {
		e.Progress.Tries++
		s.retried[lane] = s.now.Add(s.duration(f[2]))
	}
	if !slices.ContainsFunc(s.taken, func(e *queue.Entry) bool { return e.Lane() == lane }) {
		s.q.Release(lane, s.retried[lane])
		delete(s.retried, lane)
	}
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func names(batch []*queue.Entry) string {
	if len(batch) == 0 {
		return "nothing"
	}
	var all []string
	for _, e := range batch {
		o := e.Delta.Object()
		all = append(all, fmt.Sprintf("%s %s@%s", e.Delta.Op, o.Key().Name, o.ResourceVersion()))
	}
	return strings.Join(all, ", ")
}
