package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// receiver counts the events that it receives, and simulates faults.
type receiver struct {
	mu       sync.Mutex
	requests int
	got      map[string]int // by subject: the number of complete deliveries
	acked    map[string]int // by subject: the number of 2xx responses
	// fault simulates a fault at the n-th request (from 1) with events of these subjects. false:
	// there is none.
	fault func(n int, subjects []string, w http.ResponseWriter) bool
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	var subjects []string
	switch req.Header.Get("Content-Type") {
	case "application/cloudevents-batch+json":
		var events []struct{ Subject string }
		if json.Unmarshal(body, &events) == nil {
			for _, e := range events {
				subjects = append(subjects, e.Subject)
			}
		}
	case "application/json":
		subjects = []string{req.Header.Get("Ce-Subject")}
	default:
		var e struct{ Subject string }
		if json.Unmarshal(body, &e) == nil {
			subjects = []string{e.Subject}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	for _, s := range subjects {
		r.got[s]++
	}
	if r.fault != nil && r.fault(r.requests, subjects, w) {
		return
	}
	for _, s := range subjects {
		r.acked[s]++
	}
}

func newReceiver() *receiver {
	return &receiver{got: make(map[string]int), acked: make(map[string]int)}
}

// sum returns the number of events, of events that arrived more than once, and of their arrivals.
func sum(counts map[string]int) (events, twice int) {
	for _, n := range counts {
		events++
		if n > 1 {
			twice += n - 1
		}
	}
	return events, twice
}

// letters counts dead letters.
type letters struct {
	mu  sync.Mutex
	all []checkpoint.Letter
}

func (l *letters) Add(_ context.Context, all []checkpoint.Letter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, all...)
	return nil
}
func (*letters) Remove(context.Context, []uint64) (int, error) { return 0, nil }

// route starts a pipeline with one route to these sinks, enqueues n pods, and waits until all are
// delivered or dead letters.
func route(t *testing.T, n int, sinks ...plugins.Sink) *letters {
	t.Helper()
	dead := &letters{}
	r := spec.Settings{
		Name: "r", Sources: []string{"pods"}, Ops: event.Ops(), Batch: spec.Batch{Size: 8}, Concurrency: 2,
		Retry: spec.Retry{Backoff: time.Millisecond, Max: 20 * time.Millisecond},
	}
	for i, s := range sinks {
		r.Sinks = append(r.Sinks, spec.NamedSink{Name: fmt.Sprintf("s%d", i), Sink: s})
	}
	p, err := pipeline.New(pipeline.Config{Routes: []spec.Settings{r}, DeadLetters: dead})
	must.Succeed(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p.Start(ctx)
	for i := range n {
		commit, err := p.Admit(ctx, &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, "p"+strconv.Itoa(i), i+1, 10), Seen: time.Now()})
		must.Succeed(t, err)
		commit.Commit()
	}
	must.Report(t, p.Drain(ctx))
	must.Report(t, p.Close(ctx))
	return dead
}

// hangUp closes a connection, with a RST if hard, after the beginning of a response if there is
// one.
func hangUp(t *testing.T, w http.ResponseWriter, hard bool, answer string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok && hard {
		_ = tcp.SetLinger(0)
	}
	_, _ = io.WriteString(conn, answer)
	_ = conn.Close()
}

// TestFaults runs a route with a receiver that has each fault. Every event is acknowledged or a
// dead letter. Duplicates are events that arrived without an acknowledgement.
func TestFaults(t *testing.T) {
	// Guarantee: webhook-ignored
	const n = 40
	answer := func(status int) func(int, []string, http.ResponseWriter) bool {
		return func(k int, _ []string, w http.ResponseWriter) bool {
			if k%3 != 1 {
				return false
			}
			w.WriteHeader(status)
			return true
		}
	}
	cut := func(hard bool, text string) func(*testing.T) func(int, []string, http.ResponseWriter) bool {
		return func(t *testing.T) func(int, []string, http.ResponseWriter) bool {
			return func(k int, _ []string, w http.ResponseWriter) bool {
				if k%3 != 1 {
					return false
				}
				hangUp(t, w, hard, text)
				return true
			}
		}
	}
	status := func(code int) func(*testing.T) func(int, []string, http.ResponseWriter) bool {
		return func(*testing.T) func(int, []string, http.ResponseWriter) bool { return answer(code) }
	}
	for _, tt := range []struct {
		name  string
		fault func(*testing.T) func(int, []string, http.ResponseWriter) bool
	}{
		{"500, then 200", status(500)},
		{"408", status(408)},
		{"425", status(425)},
		{"it hangs up", cut(false, "")},
		{"RST", cut(true, "")},
		{"RST within the head of the answer", cut(true, "HTTP/1.1 200 OK\r\nContent-Len")},
		{"no HTTP", cut(false, "220 smtp ready\r\n")},
	} {
		for _, mode := range []string{"structured", "binary", "batched"} {
			t.Run(tt.name+" "+mode, func(t *testing.T) {
				r := newReceiver()
				r.fault = tt.fault(t)
				s := httptest.NewServer(r)
				defer s.Close()
				dead := route(t, n, open(t, fmt.Sprintf("{url: %q, mode: %s}", s.URL, mode)))
				acked, ackedTwice := sum(r.acked)
				got, gotTwice := sum(r.got)
				if acked != n || ackedTwice != 0 || got != n || len(dead.all) != 0 {
					t.Errorf("%d events acknowledged, %d of them twice, %d dead letters, of %d", acked, ackedTwice, len(dead.all), n)
				}
				if unacked := total(r.got) - total(r.acked); gotTwice != unacked || unacked == 0 {
					t.Errorf("%d arrived again, %d arrived and were not acknowledged", gotTwice, unacked)
				}
			})
		}
	}
}

func total(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// TestRejected: in each mode a rejected event is one dead letter, and all others are delivered
// once.
func TestRejected(t *testing.T) {
	// Guarantee: bad-event-in-batch
	const n = 40
	bad := func(subject string) bool { return subject[len(subject)-1] == '7' }
	for _, mode := range []string{"structured", "binary", "batched"} {
		t.Run(mode, func(t *testing.T) {
			r := newReceiver()
			r.fault = func(_ int, subjects []string, w http.ResponseWriter) bool {
				if !slices.ContainsFunc(subjects, bad) {
					return false
				}
				w.WriteHeader(http.StatusUnprocessableEntity)
				return true
			}
			s := httptest.NewServer(r)
			defer s.Close()
			dead := route(t, n, open(t, fmt.Sprintf("{url: %q, mode: %s}", s.URL, mode)))
			acked, twice := sum(r.acked)
			if acked != n-4 || twice != 0 || len(dead.all) != 4 {
				t.Errorf("%d acknowledged, %d twice, %d dead letters", acked, twice, len(dead.all))
			}
			for _, l := range dead.all {
				if !bad(l.Delta.Key().Name) {
					t.Errorf("%s is a dead letter: %s", l.Delta, l.Error)
				}
			}
		})
	}
}

// TestSlow: a receiver that accepts an event and responds too late gets it again. It is the only
// duplicate.
func TestSlow(t *testing.T) {
	r, release := newReceiver(), make(chan struct{})
	r.fault = func(k int, _ []string, _ http.ResponseWriter) bool {
		if k > 1 {
			return false
		}
		<-release
		return true
	}
	s := httptest.NewServer(r)
	defer s.Close()
	late := open(t, fmt.Sprintf("{url: %q, timeout: 50ms}", s.URL)).Write(t.Context(), []event.Event{sample()})
	close(release)
	if len(late) != 1 || late[0] == nil || plugins.ClassOf(late[0]) == plugins.Rejected {
		t.Fatalf("got %v", late)
	}
	if errs := open(t, fmt.Sprintf("{url: %q, timeout: 5m}", s.URL)).Write(t.Context(), []event.Event{sample()}); errs != nil {
		t.Error(errs)
	}
	if r.got[sample().Subject] != 2 || r.acked[sample().Subject] != 1 {
		t.Errorf("it arrived %d times, %d acknowledged", r.got[sample().Subject], r.acked[sample().Subject])
	}
}

// TestRefusedThenThere: without a listener nothing is lost. When there is one, all events are
// delivered once.
func TestRefusedThenThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	address := l.Addr().String()
	must.Succeed(t, l.Close())
	refused := make(chan struct{})
	var once sync.Once
	sink := &watched{Sink: open(t, "url: http://"+address), failed: func() { once.Do(func() { close(refused) }) }}
	r := newReceiver()
	served := make(chan func())
	go func() {
		<-refused
		again, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			served <- func() {}
			return
		}
		s := httptest.NewUnstartedServer(r)
		_ = s.Listener.Close()
		s.Listener = again
		s.Start()
		served <- s.Close
	}()
	dead := route(t, 40, sink)
	(<-served)()
	if acked, twice := sum(r.acked); acked != 40 || twice != 0 || len(dead.all) != 0 || r.requests != 40 {
		t.Errorf("%d acknowledged, %d twice, %d dead, %d requests", acked, twice, len(dead.all), r.requests)
	}
}

// watched reports failed writes.
type watched struct {
	plugins.Sink
	failed func()
}

func (w *watched) Write(ctx context.Context, events []event.Event) []error {
	errs := w.Sink.Write(ctx, events)
	if errs != nil {
		w.failed()
	}
	return errs
}

// TestTwoSinks: one of two receivers fails repeatedly. The other gets each event once.
func TestTwoSinks(t *testing.T) {
	// Guarantee: sinks-together
	const n = 100
	good, bad := newReceiver(), newReceiver()
	bad.fault = func(k int, _ []string, w http.ResponseWriter) bool {
		switch k % 4 {
		case 0:
			return false
		case 1:
			hangUp(t, w, true, "")
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return true
	}
	one, other := httptest.NewServer(good), httptest.NewServer(bad)
	defer one.Close()
	defer other.Close()
	dead := route(t, n, open(t, "url: "+one.URL), open(t, "url: "+other.URL))
	for name, r := range map[string]*receiver{"the good one": good, "the bad one": bad} {
		if acked, twice := sum(r.acked); acked != n || twice != 0 {
			t.Errorf("%s acknowledged %d, %d twice", name, acked, twice)
		}
	}
	if good.requests != n || len(dead.all) != 0 || total(bad.got) <= n {
		t.Errorf("the good one was asked %d times for %d events, the bad one %d times; %d dead letters", good.requests, n, bad.requests, len(dead.all))
	}
}
