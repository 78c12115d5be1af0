package sim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/router"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/fakekind"
)

// life is one run of the router.
type life struct {
	number int
	began  time.Time
	dir    string
	disk   *disk
	cancel context.CancelFunc
	done   chan error
	reload chan os.Signal
	log    *journal
	dead   atomic.Bool // its actions have no effect any more

	control  atomic.Pointer[api.ControlConfig] // nil: not open yet
	reloaded bool                              // or failed to reload
	looks    map[*route]look                   // see checkBounds
	writing  atomic.Int32                      // number of transactions in progress

	mu       sync.Mutex // held during each transaction, and while the file is copied
	armed    int        // the process ends at this transaction, counted from now; 0: never
	after    bool       // after the transaction instead of before
	snapshot []byte     // the final state file
	ended    chan struct{}
	saved    time.Time // time of the last cut on disk
	heard    time.Time // time of the last cut that the router knows of
	failed   time.Time // first failed write since; zero: none
	failing  bool      // the last write failed, so that the next one is delayed
}

// disk is the state of the disk for all lives.
type disk struct {
	mu     sync.Mutex
	before time.Duration // delay before a transaction
	later  time.Duration // delay of the result of a transaction
	full   bool
	ever   bool // it was slow or full at least once
}

func (d *disk) set(before, later time.Duration, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before, d.later, d.full = before, later, full
	d.ever = d.ever || before > 0 || later > 0 || full
}

func (d *disk) get() (before, later time.Duration, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.before, d.later, d.full
}

func (d *disk) troubled() bool {
	before, later, full := d.get()
	return before > 0 || later > 0 || full
}

// heardAfter reports whether the router knows of a cut after a time.
func (l *life) heardAfter(t time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard.After(t)
}

// savedAfter reports whether there was a cut after a time.
func (l *life) savedAfter(t time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.saved.After(t)
}

// lastCut returns the time of the last cut on disk.
func (l *life) lastCut() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.saved
}

// writes reports whether the last write succeeded, and none is in progress, which a slow disk may
// hold up.
func (l *life) writes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.failing && l.writing.Load() == 0
}

var (
	errDead = errors.New("the process is gone")
	errFull = fmt.Errorf("write: %w", syscall.ENOSPC)
)

// transaction wraps each transaction of the state file.
func (l *life) transaction(what string, write func() error) error {
	l.writing.Add(1)
	defer l.writing.Add(-1)
	before, later, full := l.disk.get()
	began := time.Now()
	if before > 0 {
		l.wait(before)
	}
	err := l.boundary(what, write, began, full)
	if later > 0 && err == nil {
		l.wait(later)
	}
	if err == nil && what == checkpoint.TransactionCut {
		l.mu.Lock()
		l.heard = l.saved
		l.mu.Unlock()
	}
	return err
}

func (l *life) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.ended:
	}
}

func (l *life) boundary(what string, write func() error, began time.Time, full bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead.Load() {
		return errDead
	}
	if what == checkpoint.TransactionCut && full && l.failed.IsZero() {
		l.failed = began
	}
	if what == checkpoint.TransactionCut || what == checkpoint.TransactionIntents {
		l.failing = full
	}
	if full {
		return errFull
	}
	now := false
	if l.armed > 0 {
		l.armed--
		now = l.armed == 0
	}
	if now && !l.after {
		l.kill()
		return errDead
	}
	err := write()
	if err == nil && what == checkpoint.TransactionCut {
		if l.saved = began; !l.failed.IsZero() {
			l.saved, l.failed = l.failed, time.Time{}
		}
	}
	if now {
		l.kill()
		return errDead
	}
	return err
}

// kill ends the process like SIGKILL: only the files remain. mu is held.
func (l *life) kill() {
	if l.dead.Swap(true) {
		return
	}
	data, err := os.ReadFile(l.file())
	if err == nil {
		l.snapshot = data
	}
	close(l.ended)
}

func (l *life) file() string { return filepath.Join(l.dir, "state.db") }

// arm makes the process end at the n-th transaction.
func (l *life) arm(n int, after bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed, l.after = n, after
}

// journal keeps the log lines that the simulation checks.
type journal struct {
	mu       sync.Mutex
	out      func(format string, args ...any) // gets all lines; nil: none
	reloaded int
	bad      []string // lines that must never be logged
}

// Enabled implements slog.Handler.
func (j *journal) Enabled(_ context.Context, level slog.Level) bool {
	return j.out != nil || level >= slog.LevelInfo
}

// never reports whether a message says that a delta was lost, or that the router has a bug.
func never(message string) bool {
	switch message {
	case "delta was not admitted and is lost", "delta lost: it was rejected, and there is no state folder to keep it; set state.dir",
		"a saved object cannot be read; the resource is listed",
		"the state file is damaged: it was moved away and a new one begun; all sources are listed again, and pending deltas and deletions of the meantime are lost":
		return true
	}
	return false
}

// Handle implements slog.Handler.
func (j *journal) Handle(_ context.Context, r slog.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.Message == "reloaded" {
		j.reloaded++
	}
	if never(r.Message) {
		j.bad = append(j.bad, r.Message)
	}
	if j.out != nil {
		text := ""
		r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
		j.out("      %v %s%s", r.Level, r.Message, text)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (j *journal) WithAttrs([]slog.Attr) slog.Handler { return j }

// WithGroup implements slog.Handler.
func (j *journal) WithGroup(string) slog.Handler { return j }

func (j *journal) reloads() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reloaded
}

// components are sinks and handlers that lead to the receiver.
func components(r *receiver, l *life) compile.Components {
	return compile.Components{
		Sinks: []plugins.SinkKind{fakekind.Sink{
			Definition: fakekind.Define("sim"), OpenFunc: func(_ context.Context, _ config.Node, env plugins.SinkEnv) (plugins.Sink, error) {
				return &end{r: r, l: l, name: env.Name}, nil
			},
		}},
		Handlers: []plugins.HandlerKind{fakekind.Handler{
			Definition: fakekind.Define("sim"), OpenFunc: func(_ context.Context, _ config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
				return &end{r: r, l: l, name: env.Name}, nil
			},
		}},
		Emit: func(_ *cel.Program, cache cel.Cache, grouped bool) plugins.Handler {
			r.mu.Lock()
			defer r.mu.Unlock()
			if grouped {
				return &end{r: r, l: l, name: "joint", joint: true}
			}
			r.cache = cache
			return &end{r: r, l: l, name: "emit"}
		},
	}
}

// begin starts the router.
func (w *world) begin() {
	w.lives++
	l := &life{
		number: w.lives, began: time.Now(), dir: w.dir, disk: w.disk, done: make(chan error, 1), reload: make(chan os.Signal), ended: make(chan struct{}),
		log: &journal{out: w.trace}, looks: map[*route]look{},
	}
	client, err := informer.NewClientFor(&rest.Config{Host: "http://cluster", Transport: &transport{w.c, l}})
	if err != nil {
		w.fail("client: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	w.l, w.well = l, time.Time{}
	w.write()
	go func() {
		l.done <- router.Run(ctx, router.Options{
			Config: w.file, Components: components(w.r, l), Version: "sim", Log: slog.New(l.log), DrainTimeout: 5 * time.Second,
			Reload: l.reload, Dependencies: router.Dependencies{
				Client: client, Disk: l.transaction, Plans: w.plans, Control: func(c api.ControlConfig) { l.control.Store(&c) },
			},
		})
	}()
}

// finish waits for the end of the process and records its result.
func (w *world) finish() {
	l := w.l
	l.cancel()
	if err := <-l.done; err == nil && !l.dead.Load() {
		l.saved = time.Now().Add(time.Nanosecond) // everything
	}
	for _, message := range l.log.bad {
		w.fail("life %d says: %s", l.number, message)
	}
	w.l = nil
	w.past = append(w.past, l)
	if l.snapshot != nil {
		if err := os.WriteFile(l.file(), l.snapshot, 0o600); err != nil {
			w.fail("%v", err)
		}
	}
}

// crash ends the process now.
func (w *world) crash() {
	if w.l == nil {
		return
	}
	w.l.mu.Lock()
	w.l.kill()
	w.l.mu.Unlock()
	w.finish()
}
